#include <cmath>

#include "reference/common.hpp"
#include "reference/families.hpp"

namespace espalier::reference {
namespace {

constexpr float kGeluScale = 0.79788456f;
constexpr float kGeluCubic = 0.044715f;

float gelu(float x) { return 0.5f * x * (1.0f + std::tanh(kGeluScale * x * (1.0f + kGeluCubic * x * x))); }

float gelu_derivative(float x) {
  const float t = std::tanh(kGeluScale * x * (1.0f + kGeluCubic * x * x));
  return 0.5f * x * ((1.0f - t * t) * (kGeluScale + 3.0f * kGeluScale * kGeluCubic * x * x)) + 0.5f * (1.0f + t);
}

class ReferenceElementwise final : public ElementwiseKernels {
 public:
  explicit ReferenceElementwise(ThreadPool& pool) : pool_(pool) {}

  Reason supports(DType working) const override { return needs_float(working); }

  void bias_gelu(const View& src, const View& bias, const View& dst, Stream&) override {
    with_type(src.dtype, [&](auto type) {
      using T = decltype(type);
      for_rows(pool_, src.rows, [&](std::int64_t row) {
        const T* x = src.row<T>(row);
        const T* b = present(bias) ? bias.as<T>() : nullptr;
        T* y = dst.row<T>(row);
        for (std::int64_t c = 0; c < src.cols; ++c) y[c] = from_float<T>(gelu(biased(x, b, c)));
      });
    });
  }

  void bias_gelu_backward(const View& grad_dst, const View& src, const View& bias, const View& grad_src,
                          Stream&) override {
    with_type(src.dtype, [&](auto type) {
      using T = decltype(type);
      for_rows(pool_, src.rows, [&](std::int64_t row) {
        const T* x = src.row<T>(row);
        const T* b = present(bias) ? bias.as<T>() : nullptr;
        const T* dy = grad_dst.row<T>(row);
        T* dx = grad_src.row<T>(row);
        for (std::int64_t c = 0; c < src.cols; ++c) {
          dx[c] = from_float<T>(to_float(dy[c]) * gelu_derivative(biased(x, b, c)));
        }
      });
    });
  }

  void bias_dropout_add(const View& src, const View& bias, const View& residual, const Dropout& dropout,
                        const View& dst, Stream&) override {
    with_type(src.dtype, [&](auto type) {
      using T = decltype(type);
      for_rows(pool_, src.rows, [&](std::int64_t row) {
        const T* x = src.row<T>(row);
        const T* b = present(bias) ? bias.as<T>() : nullptr;
        const T* r = residual.row<T>(row);
        T* y = dst.row<T>(row);
        for (std::int64_t c = 0; c < src.cols; ++c) {
          y[c] = from_float<T>(to_float(r[c]) + dropped(biased(x, b, c), dropout, row, c));
        }
      });
    });
  }

  void dropout_backward(const View& grad_dst, const Dropout& dropout, const View& grad_src, Stream&) override {
    if (!dropout.active() && grad_dst.data == grad_src.data) return;
    with_type(grad_dst.dtype, [&](auto type) {
      using T = decltype(type);
      for_rows(pool_, grad_dst.rows, [&](std::int64_t row) {
        const T* dy = grad_dst.row<T>(row);
        T* dx = grad_src.row<T>(row);
        for (std::int64_t c = 0; c < grad_dst.cols; ++c) {
          dx[c] = from_float<T>(dropped(to_float(dy[c]), dropout, row, c));
        }
      });
    });
  }

  void embedding(const View& ids, const View& table, std::int64_t first_id, const View& dst, Stream&) override {
    with_type(table.dtype, [&](auto type) {
      using T = decltype(type);
      for_rows(pool_, dst.rows, [&](std::int64_t row) {
        const std::int64_t entry = ids.as<std::int32_t>()[row] - first_id;
        T* out = dst.row<T>(row);
        if (entry >= 0 && entry < table.rows) {
          std::copy_n(table.row<T>(entry), table.cols, out);
        } else {
          std::fill_n(out, table.cols, from_float<T>(0.0f));
        }
      });
    });
  }

  void embedding_backward(const View& ids, const View& grad_dst, std::int64_t first_id, const View& grad_table,
                          Stream&) override {
    ESPALIER_ASSERT(grad_table.dtype == DType::f32);
    with_type(grad_dst.dtype, [&](auto type) {
      using T = decltype(type);
      // By columns, since tokens may share a row of the table.
      for_blocks(pool_, grad_dst.cols, kColumnBlock, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = 0; t < grad_dst.rows; ++t) {
          const std::int64_t entry = ids.as<std::int32_t>()[t] - first_id;
          if (entry < 0 || entry >= grad_table.rows) continue;
          const T* gradient = grad_dst.row<T>(t);
          float* out = grad_table.row<float>(entry);
          for (std::int64_t c = begin; c < end; ++c) out[c] += to_float(gradient[c]);
        }
      });
    });
  }

  void add(const View& a, const View& b, const View& dst, Stream&) override {
    convert(a, dst, [&](std::int64_t row, std::int64_t column, std::int64_t n, float* x) {
      if (!present(b)) return;
      float y[kColumnBlock];
      widen(b, row, column, n, y);
      for (std::int64_t i = 0; i < n; ++i) x[i] += y[i];
    });
  }

  void scale(const View& src, float factor, const View& dst, Stream&) override {
    convert(src, dst, [&](std::int64_t, std::int64_t, std::int64_t n, float* x) {
      for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
    });
  }

 private:
  template <class T>
  static float biased(const T* x, const T* bias, std::int64_t c) {
    return bias != nullptr ? to_float(x[c]) + to_float(bias[c]) : to_float(x[c]);
  }

  static float dropped(float x, const Dropout& dropout, std::int64_t row, std::int64_t column) {
    if (!dropout.active()) return x;
    return dropout.keeps_hidden(row, column) ? x * dropout.scale() : 0.0f;
  }

  /// dst = change(src) in pieces of a row; operands may differ in dtype.
  template <class Change>
  void convert(const View& src, const View& dst, Change&& change) {
    ESPALIER_ASSERT(src.rows == dst.rows && src.cols == dst.cols);
    const std::int64_t pieces = blocks(src.cols, kFlatBlock);
    if (src.empty()) return;
    pool_.run(src.rows * pieces, [&](std::int64_t item) {
      const std::int64_t row = item / pieces;
      const std::int64_t begin = item % pieces * kFlatBlock;
      const std::int64_t end = std::min(src.cols, begin + kFlatBlock);
      float x[kColumnBlock];
      for (std::int64_t c = begin; c < end; c += kColumnBlock) {
        const std::int64_t n = std::min(kColumnBlock, end - c);
        widen(src, row, c, n, x);
        change(row, c, n, x);
        narrow(x, n, dst, row, c);
      }
    });
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<ElementwiseKernels> make_elementwise(ThreadPool& pool) {
  return std::make_unique<ReferenceElementwise>(pool);
}

}  // namespace espalier::reference
