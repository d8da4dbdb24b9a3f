#include "reference/common.hpp"
#include "reference/families.hpp"
#include "reference/product.hpp"

namespace espalier::reference {
namespace {

class ReferenceMatrix final : public MatrixKernels {
 public:
  explicit ReferenceMatrix(ThreadPool& pool) : pool_(pool) {}

  Reason supports(DType working) const override { return needs_float(working); }
  std::size_t workspace(const Matmul&) const override { return 0; }

  void matmul(const Matmul& args, Stream&) override {
    const Product product{args.a, args.transpose_a, args.b, args.transpose_b};
    ESPALIER_ASSERT(args.dst.rows == product.rows() && args.dst.cols == product.cols());
    ESPALIER_ASSERT(!args.accumulate || args.dst.dtype == DType::f32);
    ESPALIER_ASSERT(!present(args.bias) || args.bias.elements() == args.dst.cols);
    multiply(pool_, product, [&](std::int64_t row, std::int64_t column, std::int64_t n, float* sums) {
      if (present(args.bias)) {
        float bias[kColumnBlock];
        for (std::int64_t j = 0; j < n; j += kColumnBlock) {
          const std::int64_t part = std::min(kColumnBlock, n - j);
          widen(args.bias, 0, column + j, part, bias);
          for (std::int64_t i = 0; i < part; ++i) sums[j + i] += bias[i];
        }
      }
      if (args.accumulate) {
        const float* dst = args.dst.row<float>(row) + column;
        for (std::int64_t j = 0; j < n; ++j) sums[j] += dst[j];
      }
      narrow(sums, n, args.dst, row, column);
    });
  }

  void column_sum(const View& src, const View& dst, bool accumulate, Stream&) override {
    ESPALIER_ASSERT(dst.dtype == DType::f32 && dst.elements() == src.cols);
    with_type(src.dtype, [&](auto type) {
      using T = decltype(type);
      for_blocks(pool_, src.cols, kColumnBlock, [&](std::int64_t begin, std::int64_t end) {
        float sums[kColumnBlock] = {};
        for (std::int64_t r = 0; r < src.rows; ++r) {
          const T* row = src.row<T>(r);
          for (std::int64_t c = begin; c < end; ++c) sums[c - begin] += to_float(row[c]);
        }
        float* out = dst.as<float>();
        for (std::int64_t c = begin; c < end; ++c) out[c] = (accumulate ? out[c] : 0.0f) + sums[c - begin];
      });
    });
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<MatrixKernels> make_matrix(ThreadPool& pool) { return std::make_unique<ReferenceMatrix>(pool); }

}  // namespace espalier::reference
