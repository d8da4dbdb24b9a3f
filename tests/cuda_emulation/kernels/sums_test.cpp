// Sums over rows and over ranks, and casts, over sizes, placements and schedules, against the reference provider and
// plain loops.
#include <algorithm>
#include <cmath>
#include <vector>

#include "column_sum.hpp"
#include "combine.hpp"
#include "kernels/schedules.hpp"

namespace espalier::testing {
namespace {

namespace cuda = kernels_fused::cuda;

class SumsSchedules : public ScheduleTest {
 protected:
  /// Only the reference provider has matrices here.
  static bool is_reference(Backend& backend) { return backend.kernels().matrix != nullptr; }

  /// Multiples of 1/64 in [-1, 1): exact in every type, and so are FP32 sums of thousands, in any order.
  static void set_exact(Operand& operand, std::uint32_t seed) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < operand.view().elements(); ++i) {
      values.push_back(std::floor(random_value(seed, i, -64, 64)) / 64);
    }
    operand.set(values);
  }

  static std::vector<double> columns(Backend& backend, std::int64_t rows, std::int64_t cols, Placement placement,
                                     bool accumulate) {
    Operand src(backend, dtype(), rows, cols, placement), dst(backend, DType::f32, 1, cols, {placement.offset, 0});
    set_exact(src, 1);
    set_exact(dst, 2);
    if (is_reference(backend)) {
      backend.kernels().matrix->column_sum(src, dst, accumulate, stream(backend));
    } else {
      cuda::Scratch scratch(backend.device());
      cuda::sum_columns(src, dst, accumulate, scratch, stream(backend));
    }
    return dst.read();
  }

  /// The pieces of `size` ranks joined on one of them.
  static std::vector<double> joined(Backend& backend, std::int64_t cols, Placement placement, int size, int rank,
                                    Reduce how) {
    const Placement at{placement.offset, 0};
    Operand own(backend, dtype(), 1, cols, at), others(backend, dtype(), 1, (size - 1) * cols);
    Operand dst(backend, dtype(), 1, cols, at);
    own.random(1);
    others.random(2);
    if (is_reference(backend)) {
      std::vector<double> want;
      for (std::int64_t i = 0; i < cols; ++i) {
        float sum = 0;
        for (int r = 0; r < size; ++r) {
          const auto x = static_cast<float>(r == rank ? own[i] : others[(r < rank ? r : r - 1) * cols + i]);
          sum = r == 0 ? x : how == Reduce::max ? std::max(sum, x) : sum + x;
        }
        want.push_back(rounded(dtype(), sum));
      }
      return want;
    }
    cuda::combine({own.view().data, others.view().data, cols, rank, size}, how, dtype(), dst.view().data,
                  cuda::handle(stream(backend)));
    return dst.read();
  }
};

TEST_P(SumsSchedules, Columns) {
  for_shapes([&](std::int64_t rows, std::int64_t cols, Placement placement) {
    for (const bool accumulate : {false, true}) {
      expect_reference([&](Backend& backend) { return columns(backend, rows, cols, placement, accumulate); },
                       Agreement::bits);
    }
  });
}

TEST_P(SumsSchedules, ColumnsOfManyRows) {  // several blocks of rows, the last of them short
  for (const std::int64_t rows : {127, 128, 129, 1000, 1025}) {
    expect_reference([&](Backend& backend) { return columns(backend, rows, 65, {1, 3}, true); }, Agreement::bits);
  }
}

TEST_P(SumsSchedules, PiecesOfRanks) {
  for_shapes([&](std::int64_t, std::int64_t cols, Placement placement) {
    for (const int size : {2, 3, 6}) {
      for (int rank = 0; rank < size; ++rank) {
        for (const Reduce how : {Reduce::sum_rank_order, Reduce::max}) {
          expect_reference([&](Backend& backend) { return joined(backend, cols, placement, size, rank, how); },
                           Agreement::bits);
        }
      }
    }
  });
}

TEST_P(SumsSchedules, Casts) {
  for_shapes([&](std::int64_t, std::int64_t cols, Placement placement) {
    for (const DType other : {DType::f32, DType::bf16, DType::f16}) {
      expect_reference(
          [&](Backend& backend) {
            Operand src(backend, dtype(), 1, cols, {placement.offset, 0}),
                dst(backend, other, 1, cols, {placement.gap, 0});
            src.random(1);
            if (!is_reference(backend)) {
              cuda::convert(src, dst, stream(backend));
              return dst.read();
            }
            std::vector<double> want;
            for (const double x : src.values()) want.push_back(rounded(other, x));
            return want;
          },
          Agreement::bits);
    }
  });
}

}  // namespace

INSTANTIATE_SCHEDULES(SumsSchedules);

}  // namespace espalier::testing
