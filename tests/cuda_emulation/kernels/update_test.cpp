// What optimizers do to memory, over sizes, placements and schedules: the reference provider's bits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/schedules.hpp"

namespace espalier::testing {
namespace {

class UpdateSchedules : public ScheduleTest {
 protected:
  static constexpr std::int64_t kSumBlock = 16384;  ///< elements of a partial sum of squares
  static constexpr std::int64_t kSumRound = 2048;   ///< partial sums kept at a time

  /// Reads the results back, one behind the other.
  template <class... Operands>
  static std::vector<double> all(Operands&... operands) {
    std::vector<double> results;
    (append(results, operands), ...);
    return results;
  }
};

TEST_P(UpdateSchedules, AdamW) {
  for_shapes([&](std::int64_t rows, std::int64_t cols, Placement placement) {
    const Placement at{placement.offset, 0};  // of contiguous vectors
    for (const bool skipped : {false, true}) {
      const auto work = [&](Backend& backend) {
        Operand gradient(backend, DType::f32, 1, cols, at), master(backend, DType::f32, 1, cols, at);
        Operand moment1(backend, DType::f32, 1, cols, at), moment2(backend, DType::f32, 1, cols, at);
        Operand copy(backend, dtype(), 1, cols, {rows, 0}), factor(backend, DType::f32, 1, 1);
        Operand skip = i32(backend, {skipped ? 1.0 : 0.0});
        master.random(1);
        factor.fill(0.3);
        AdamW args{gradient, master, moment1, moment2, copy};
        args.lr = 1e-2;
        args.weight_decay = 0.1;
        args.factor = factor.view().as<float>();
        args.skip = skip.view().as<std::int32_t>();
        for (args.step = 1; args.step <= 3; ++args.step) {
          gradient.random(static_cast<std::uint32_t>(10 + args.step));
          backend.kernels().update->adamw(args, stream(backend));
        }
        return all(master, moment1, moment2, copy);
      };
      expect_reference(work, Agreement::bits);
    }
  });
}

TEST_P(UpdateSchedules, VectorOperations) {
  for_shapes([&](std::int64_t, std::int64_t cols, Placement placement) {
    const Placement at{placement.offset, 0};
    const auto work = [&](Backend& backend) {
      Operand x(backend, DType::f32, 1, cols, at), y(backend, DType::f32, 1, cols, {placement.gap, 0});
      Operand copy(backend, dtype(), 1, cols, at), signs(backend, DType::f32, 1, cols, at);
      Operand factor(backend, DType::f32, 1, 1);
      x.random(1);
      y.random(2);
      factor.fill(0.7);
      UpdateKernels& update = *backend.kernels().update;
      const auto* by = factor.view().as<float>();
      update.scale(x, 1.1, by, nullptr, stream(backend));
      update.lerp(x, y, 0.3, by, nullptr, stream(backend));
      update.axpy(-0.7, y, x, copy, by, nullptr, stream(backend));
      update.axpy(0.1, y, x, {}, nullptr, nullptr, stream(backend));
      update.sign(x, signs, nullptr, stream(backend));
      return all(x, copy, signs);
    };
    expect_reference(work, Agreement::bits);
  });
}

TEST_P(UpdateSchedules, SumsOfSquares) {
  for_shapes([&](std::int64_t, std::int64_t cols, Placement placement) {
    expect_reference([&](Backend& backend) {
      Operand x(backend, DType::f32, 1, 3 * cols, {placement.offset, 0}), slot(backend, DType::f64, 1, 1);
      backend.kernels().update->squared_sum(x.random(1), slot.view().as<double>(), stream(backend));
      return slot.read();
    });
  });
}

TEST_P(UpdateSchedules, SumsOfSquaresDoNotDependOnAlignment) {
  if (GetParam().dtype != DType::f32) return;  // FP32 whatever the working type
  cuda_emulation::options() = {};
  EmulatedBackend backend;
  for (const std::int64_t n : {5, 1000, 16383, 16384, 16385, 40001}) {
    std::vector<double> first;
    for (const std::int64_t offset : {0, 1, 3}) {
      Operand x(backend, DType::f32, 1, n, {offset, 0}), slot(backend, DType::f64, 1, 1);
      slot.fill(0.1);
      backend.kernels().update->squared_sum(x.random(1), slot.view().as<double>(), stream(backend));
      if (offset == 0) first = slot.read();
      EXPECT_EQ(slot.read(), first) << n << " elements, offset " << offset;
    }
  }
}

TEST_P(UpdateSchedules, SumsOfSquaresAddBlocksInAscendingOrder) {
  if (GetParam().dtype != DType::f32) return;
  cuda_emulation::options() = {};
  EmulatedBackend backend;
  Operand x(backend, DType::f32, 1, 5 * kSumBlock + 7), slot(backend, DType::f64, 1, 1);
  x.random(1);
  UpdateKernels& update = *backend.kernels().update;
  double want = 0.1;
  for (std::int64_t first = 0; first < x.view().cols; first += kSumBlock) {
    const std::int64_t end = std::min(first + kSumBlock, x.view().cols);
    update.squared_sum(x.view().flat_range(first, end), slot.fill(0).view().as<double>(), stream(backend));
    want += slot.read()[0];
  }
  update.squared_sum(x, slot.fill(0.1).view().as<double>(), stream(backend));
  EXPECT_EQ(slot.read()[0], want);
}

TEST_P(UpdateSchedules, SumsOfSquaresInSeveralRounds) {
  if (!GetParam().whole || GetParam().dtype != DType::f32) return;
  cuda_emulation::options() = {.order = cuda_emulation::Order::forward, .seed = 1, .races = false};
  EmulatedBackend backend;
  const std::int64_t n = kSumRound * kSumBlock + 1;
  const DeviceMemory memory = backend.device().reserve(static_cast<std::size_t>(n) * sizeof(float), "kernel tests");
  auto* x = reinterpret_cast<float*>(memory.data());  // zeros; the emulated device's memory is the host's
  for (const std::int64_t i : {std::int64_t{0}, kSumBlock - 1, kSumBlock, n - 2, n - 1}) x[i] = 2.0f;
  Operand slot(backend, DType::f64, 1, 1);
  backend.kernels().update->squared_sum(View::vector(x, n, DType::f32), slot.view().as<double>(), stream(backend));
  EXPECT_EQ(slot.read()[0], 20);
}

TEST_P(UpdateSchedules, VerdictsAreTheReferences) {
  if (GetParam().dtype != DType::f32) return;  // knows no working type
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const std::int64_t parameters : {1, 255, 256, 257, 1000}) {
    for (const double clip : {0.0, 1.0, 1e9}) {
      for (const double tokens : {0.0, 900.0, nan}) {
        for (const double loss : {3.7, infinity}) {
          for (const double extra : {0.0, infinity, nan}) {
            const auto work = [&](Backend& backend) {
              Operand slots(backend, DType::f64, 1, parameters + 2), factor(backend, DType::f32, 1, 1);
              Operand skip = i32(backend, {7});
              std::vector<double> values;  // so far apart that the order of the sum shows
              for (std::int64_t i = 0; i < parameters; ++i) values.push_back(std::exp2(random_value(3, i, -50, 10)));
              values.back() += extra;
              values.insert(values.end(), {loss, tokens});
              slots.set(values);
              const VerdictRule rule{slots.view().as<double>(), parameters, 1000, 0.37, clip};
              backend.kernels().update->verdict(rule, factor.view().as<float>(), skip.view().as<std::int32_t>(),
                                                stream(backend));
              return all(factor, skip);
            };
            expect_reference(work, Agreement::bits);
          }
        }
      }
    }
  }
}

TEST_P(UpdateSchedules, VerdictsAddSlotsInAscendingOrder) {
  const auto work = [&](Backend& backend) {
    Operand slots(backend, DType::f64, 1, 402), factor(backend, DType::f32, 1, 1);
    Operand skip = i32(backend, {7});
    std::vector<double> values(402, 1.0);  // two numbers that swallow the others unless they meet first
    values[0] = 1e17;
    values[1] = -1e17;
    slots.set(values);
    const VerdictRule rule{slots.view().as<double>(), 400, 1, 1, 1};
    backend.kernels().update->verdict(rule, factor.view().as<float>(), skip.view().as<std::int32_t>(), stream(backend));
    return all(factor, skip);
  };
  expect_reference(work, Agreement::bits);
}

TEST_P(UpdateSchedules, NothingToDo) {
  const auto work = [&](Backend& backend) {
    Operand none(backend, DType::f32, 1, 0), slot(backend, DType::f64, 1, 1);
    slot.fill(2);
    UpdateKernels& update = *backend.kernels().update;
    update.adamw({none, none, none, none, {}}, stream(backend));
    update.scale(none, 2, nullptr, nullptr, stream(backend));
    update.axpy(2, none, none, {}, nullptr, nullptr, stream(backend));
    update.squared_sum(none, slot.view().as<double>(), stream(backend));
    return slot.read();
  };
  expect_reference(work, Agreement::bits);
}

}  // namespace

INSTANTIATE_SCHEDULES(UpdateSchedules);

}  // namespace espalier::testing
