#include "elementwise.hpp"

#include <string>

#include "compat.cuh"
#include "element.cuh"
#include "espalier/error.hpp"
#include "launch.cuh"
#include "row_tiles.cuh"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

/// A matrix as a kernel takes it.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;

  __device__ T* at(std::int64_t row, std::int64_t c) const { return data + row * stride + c; }
};

template <class T>
Rows<T> rows_of(const View& view) {
  return {view.as<T>(), view.row_stride};
}

bool present(const View& view) { return view.data != nullptr && !view.empty(); }

/// Of an operation whose rows share nothing.
struct NoColumn {};

/// The bias of one thread's columns, the same for all its rows.
template <int kWidth>
struct Shift {
  float at[kWidth];
};

/// @param bias  null for none: zeros.
template <int kWidth, class T>
__device__ Shift<kWidth> load_shift(const T* bias, std::int64_t c, int n, bool aligned) {
  Pack<T, kWidth> pack;
  if (bias != nullptr) pack = load_pack<T, kWidth>(bias + c, n, aligned);
  Shift<kWidth> shift;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) shift.at[i] = pack[i];
  return shift;
}

// GeLU's tanh form through the logistic function: 0.5 (1 + tanh u) = 1 / (1 + e^(−2u)). Power and quotient are good to
// a few units of the last place of what they give, and what they give is a share of x.
constexpr float kGeluScale = 0.79788456f;
constexpr float kGeluCubic = 0.044715f;
constexpr float kGeluExponent =
    static_cast<float>(-2.0 * 0.79788456 * 1.4426950408889634);  // e^(−2u) as a power of two

/// 1 / (1 + e^(−2u)), u = 0.79788456 x (1 + 0.044715 x²).
__device__ inline float gelu_share(float x) {
  return __fdividef(1.0f, 1.0f + exp2f(kGeluExponent * x * (1.0f + kGeluCubic * x * x)));
}

/// s + 2 x s (1 − s) u'.
__device__ inline float gelu_derivative(float x) {
  const float share = gelu_share(x);
  const float slope = 2.0f * kGeluScale * (1.0f + 3.0f * kGeluCubic * x * x);
  return share + x * share * (1.0f - share) * slope;
}

template <class T>
struct BiasGelu {
  static constexpr int kWidth = kPackColumns<T>;
  using Values = Pack<T, kWidth>;
  Rows<const T> src;
  const T* bias;
  Rows<T> dst;

  __device__ Shift<kWidth> column(std::int64_t c, int n, bool aligned) const {
    return load_shift<kWidth>(bias, c, n, aligned);
  }
  __device__ Values load(std::int64_t row, std::int64_t c, int n, bool aligned) const {
    return load_pack<T, kWidth>(src.at(row, c), n, aligned);
  }
  __device__ void store(std::int64_t row, std::int64_t c, int n, bool aligned, const Shift<kWidth>& shift,
                        const Values& x) const {
    float y[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float biased = x[i] + shift.at[i];
      y[i] = biased * gelu_share(biased);
    }
    store_pack(dst.at(row, c), Pack<T, kWidth>::of(y), n, aligned);
  }
};

template <class T>
struct BiasGeluBackward {
  static constexpr int kWidth = kPackColumns<T>;
  using Values = Pack<T, kWidth>;
  struct Item {
    Values x, gradient;
  };
  Rows<const T> grad_dst, src;
  const T* bias;
  Rows<T> grad_src;

  __device__ Shift<kWidth> column(std::int64_t c, int n, bool aligned) const {
    return load_shift<kWidth>(bias, c, n, aligned);
  }
  __device__ Item load(std::int64_t row, std::int64_t c, int n, bool aligned) const {
    return {load_pack<T, kWidth>(src.at(row, c), n, aligned), load_pack<T, kWidth>(grad_dst.at(row, c), n, aligned)};
  }
  __device__ void store(std::int64_t row, std::int64_t c, int n, bool aligned, const Shift<kWidth>& shift,
                        const Item& item) const {
    float dx[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float biased = item.x[i] + shift.at[i];
      dx[i] = item.gradient[i] * gelu_derivative(biased);
    }
    store_pack(grad_src.at(row, c), Pack<T, kWidth>::of(dx), n, aligned);
  }
};

/// Division by a number known at the launch, of numbers below 2^31: exact, as the error of the factor stays below 1 /
/// divisor.
struct Divisor {
  std::uint32_t divisor, factor;
  unsigned shift = 31;

  explicit Divisor(std::int64_t by) : divisor(static_cast<std::uint32_t>(by)) {
    while ((std::uint64_t{1} << (shift - 31)) < divisor) ++shift;
    factor = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + divisor - 1) / divisor);
  }
  __device__ std::uint32_t quotient(std::uint32_t x) const {
    return static_cast<std::uint32_t>(std::uint64_t{x} * factor >> shift);
  }
};

/// What is kept of a row's elements, and by how much that is multiplied; no dropout keeps all as it is. Random words as
/// Dropout::hidden_block() gives them, its division made cheap: whole samples are taken off the first token beforehand.
template <bool kActive>
struct Mask {
  PhiloxKey key;
  std::uint32_t threshold;
  float factor;
  std::int64_t first_sample;
  std::uint32_t first_token;
  Divisor seq;

  Mask(const Dropout& dropout, std::int64_t rows)
      : key(dropout.key),
        threshold(dropout.threshold()),
        factor(dropout.scale()),
        first_sample(dropout.first_sample + dropout.first_token / dropout.seq),
        first_token(static_cast<std::uint32_t>(dropout.first_token % dropout.seq)),
        seq(dropout.seq) {
    ESPALIER_ASSERT(dropout.seq + rows < std::int64_t{1} << 31);
  }

  /// Drops among kWidth values from column c on, a multiple of 4: one block of random words for four of them.
  template <int kWidth>
  __device__ void apply(std::int64_t row, std::int64_t c, float (&values)[kWidth]) const {
    if constexpr (kActive) {
      const std::uint32_t flat = first_token + static_cast<std::uint32_t>(row);
      const std::uint32_t samples = seq.quotient(flat);
      const std::uint32_t token = flat - samples * seq.divisor;
      const auto sample = static_cast<std::uint64_t>(first_sample + samples);
#pragma unroll
      for (int first = 0; first < kWidth; first += 4) {
        const PhiloxCounter words =
            philox(key, {static_cast<std::uint32_t>((c + first) / 4), token, static_cast<std::uint32_t>(sample),
                         static_cast<std::uint32_t>(sample >> 32)});
#pragma unroll
        for (int i = 0; i < 4; ++i) values[first + i] = words[i] >= threshold ? values[first + i] * factor : 0.0f;
      }
    }
  }
};

template <class T, bool kActive>
struct BiasDropoutAdd {
  static constexpr int kWidth = kPackColumns<T>;
  using Values = Pack<T, kWidth>;
  struct Item {
    Values x, residual;
  };
  Rows<const T> src;
  const T* bias;
  Rows<const T> residual;
  Mask<kActive> mask;
  Rows<T> dst;

  __device__ Shift<kWidth> column(std::int64_t c, int n, bool aligned) const {
    return load_shift<kWidth>(bias, c, n, aligned);
  }
  __device__ Item load(std::int64_t row, std::int64_t c, int n, bool aligned) const {
    return {load_pack<T, kWidth>(src.at(row, c), n, aligned), load_pack<T, kWidth>(residual.at(row, c), n, aligned)};
  }
  __device__ void store(std::int64_t row, std::int64_t c, int n, bool aligned, const Shift<kWidth>& shift,
                        const Item& item) const {
    float branch[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) branch[i] = item.x[i] + shift.at[i];
    mask.apply(row, c, branch);
    float y[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) y[i] = item.residual[i] + branch[i];
    store_pack(dst.at(row, c), Pack<T, kWidth>::of(y), n, aligned);
  }
};

template <class T>
struct DropoutBackward {
  static constexpr int kWidth = kPackColumns<T>;
  using Values = Pack<T, kWidth>;
  Rows<const T> grad_dst;
  Mask<true> mask;
  Rows<T> grad_src;

  __device__ NoColumn column(std::int64_t, int, bool) const { return {}; }
  __device__ Values load(std::int64_t row, std::int64_t c, int n, bool aligned) const {
    return load_pack<T, kWidth>(grad_dst.at(row, c), n, aligned);
  }
  __device__ void store(std::int64_t row, std::int64_t c, int n, bool aligned, NoColumn, const Values& gradient) const {
    float values[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] = gradient[i];
    mask.apply(row, c, values);
    store_pack(grad_src.at(row, c), Pack<T, kWidth>::of(values), n, aligned);
  }
};

template <class A, class B, class D>
struct Add {
  static constexpr int kWidth = kPackColumns<A, B, D>;
  struct Item {
    Pack<A, kWidth> a;
    Pack<B, kWidth> b;
  };
  Rows<const A> a;
  Rows<const B> b;
  Rows<D> dst;

  __device__ NoColumn column(std::int64_t, int, bool) const { return {}; }
  __device__ Item load(std::int64_t row, std::int64_t c, int n, bool aligned) const {
    return {load_pack<A, kWidth>(a.at(row, c), n, aligned), load_pack<B, kWidth>(b.at(row, c), n, aligned)};
  }
  __device__ void store(std::int64_t row, std::int64_t c, int n, bool aligned, NoColumn, const Item& item) const {
    float sum[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] = item.a[i] + item.b[i];
    store_pack(dst.at(row, c), Pack<D, kWidth>::of(sum), n, aligned);
  }
};

template <class S, class D>
struct Scale {
  static constexpr int kWidth = kPackColumns<S, D>;
  using Values = Pack<S, kWidth>;
  Rows<const S> src;
  float factor;
  Rows<D> dst;

  __device__ NoColumn column(std::int64_t, int, bool) const { return {}; }
  __device__ Values load(std::int64_t row, std::int64_t c, int n, bool aligned) const {
    return load_pack<S, kWidth>(src.at(row, c), n, aligned);
  }
  __device__ void store(std::int64_t row, std::int64_t c, int n, bool aligned, NoColumn, const Values& x) const {
    float y[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) y[i] = x[i] * factor;
    store_pack(dst.at(row, c), Pack<D, kWidth>::of(y), n, aligned);
  }
};

/// Tiles of a matrix whose columns share nothing: cut anew where all operands are contiguous, which sets their strides.
template <int kWidth, class... Views>
RowTiles element_tiles(View& first, Views&... others) {
  if (!first.contiguous() || !(others.contiguous() && ...)) {
    return RowTiles(first.rows, first.cols, kWidth, aligned_rows(first, others...));
  }
  RowTiles tiles = flat_tiles(first.elements(), kWidth);
  for (View* view : {&first, &others...}) view->row_stride = tiles.cols;
  tiles.aligned = aligned_rows(first, others...);
  return tiles;
}

bool same_shape(const View& a, const View& b) { return a.rows == b.rows && a.cols == b.cols; }

bool fits_bias(const View& bias, const View& src) { return !present(bias) || bias.elements() == src.cols; }

template <class T>
const T* bias_of(const View& bias) {
  return present(bias) ? bias.as<const T>() : nullptr;
}

template <bool kActive>
void add_dropped(const View& src, const View& bias, const View& residual, const Dropout& dropout, const View& dst,
                 const Queue& queue) {
  with_element(src.dtype, [&](auto type) {
    using T = decltype(type);
    using Operation = BiasDropoutAdd<T, kActive>;
    const Operation operation{rows_of<const T>(src), bias_of<T>(bias), rows_of<const T>(residual),
                              Mask<kActive>(dropout, src.rows), rows_of<T>(dst)};
    const RowTiles tiles(src.rows, src.cols, Operation::kWidth, aligned_rows(src, bias, residual, dst));
    launch_rows("bias_dropout_add", operation, tiles, queue);
  });
}

}  // namespace

Reason CudaElementwise::supports(DType working) const {
  if (working == DType::f32 || working == DType::bf16 || working == DType::f16) return {};
  return "kernels_fused_cuda: no element-wise kernels in " + std::string(name_of(working));
}

void CudaElementwise::bias_gelu(const View& src, const View& bias, const View& dst, Stream& stream) {
  ESPALIER_ASSERT(same_shape(src, dst) && fits_bias(bias, src));
  with_element(src.dtype, [&](auto type) {
    using T = decltype(type);
    using Operation = BiasGelu<T>;
    const Operation operation{rows_of<const T>(src), bias_of<T>(bias), rows_of<T>(dst)};
    const RowTiles tiles(src.rows, src.cols, Operation::kWidth, aligned_rows(src, bias, dst));
    launch_rows("bias_gelu", operation, tiles, handle(stream));
  });
}

void CudaElementwise::bias_gelu_backward(const View& grad_dst, const View& src, const View& bias, const View& grad_src,
                                         Stream& stream) {
  ESPALIER_ASSERT(same_shape(src, grad_dst) && same_shape(src, grad_src) && fits_bias(bias, src));
  with_element(src.dtype, [&](auto type) {
    using T = decltype(type);
    using Operation = BiasGeluBackward<T>;
    const Operation operation{rows_of<const T>(grad_dst), rows_of<const T>(src), bias_of<T>(bias),
                              rows_of<T>(grad_src)};
    const RowTiles tiles(src.rows, src.cols, Operation::kWidth, aligned_rows(grad_dst, src, bias, grad_src));
    launch_rows("bias_gelu_backward", operation, tiles, handle(stream));
  });
}

void CudaElementwise::bias_dropout_add(const View& src, const View& bias, const View& residual, const Dropout& dropout,
                                       const View& dst, Stream& stream) {
  ESPALIER_ASSERT(same_shape(src, residual) && same_shape(src, dst) && fits_bias(bias, src));
  if (dropout.active()) {
    add_dropped<true>(src, bias, residual, dropout, dst, handle(stream));
  } else {
    add_dropped<false>(src, bias, residual, dropout, dst, handle(stream));
  }
}

void CudaElementwise::dropout_backward(const View& grad_dst, const Dropout& dropout, const View& grad_src,
                                       Stream& stream) {
  ESPALIER_ASSERT(same_shape(grad_dst, grad_src));
  if (!dropout.active()) {
    if (grad_dst.data != grad_src.data) scale(grad_dst, 1.0f, grad_src, stream);
    return;
  }
  with_element(grad_dst.dtype, [&](auto type) {
    using T = decltype(type);
    using Operation = DropoutBackward<T>;
    const Operation operation{rows_of<const T>(grad_dst), Mask<true>(dropout, grad_dst.rows), rows_of<T>(grad_src)};
    const RowTiles tiles(grad_dst.rows, grad_dst.cols, Operation::kWidth, aligned_rows(grad_dst, grad_src));
    launch_rows("dropout_backward", operation, tiles, handle(stream));
  });
}

void CudaElementwise::add(const View& a, const View& b, const View& dst, Stream& stream) {
  if (!present(b)) {
    scale(a, 1.0f, dst, stream);  // exact
    return;
  }
  ESPALIER_ASSERT(same_shape(a, b) && same_shape(a, dst));
  with_element(a.dtype, [&](auto of_a) {
    with_element(b.dtype, [&](auto of_b) {
      with_element(dst.dtype, [&](auto of_dst) {
        using Operation = Add<decltype(of_a), decltype(of_b), decltype(of_dst)>;
        View left = a, right = b, to = dst;
        const RowTiles tiles = element_tiles<Operation::kWidth>(left, right, to);
        const Operation operation{rows_of<const decltype(of_a)>(left), rows_of<const decltype(of_b)>(right),
                                  rows_of<decltype(of_dst)>(to)};
        launch_rows("add", operation, tiles, handle(stream));
      });
    });
  });
}

void CudaElementwise::scale(const View& src, float factor, const View& dst, Stream& stream) {
  ESPALIER_ASSERT(same_shape(src, dst));
  with_element(src.dtype, [&](auto of_src) {
    with_element(dst.dtype, [&](auto of_dst) {
      using Operation = Scale<decltype(of_src), decltype(of_dst)>;
      View from = src, to = dst;
      const RowTiles tiles = element_tiles<Operation::kWidth>(from, to);
      const Operation operation{rows_of<const decltype(of_src)>(from), factor, rows_of<decltype(of_dst)>(to)};
      launch_rows("scale", operation, tiles, handle(stream));
    });
  });
}

}  // namespace espalier::kernels_fused::cuda
