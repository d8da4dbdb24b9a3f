// LayerNorm. A row is read two or three times; it stays in the first-level cache meanwhile.
#include "simd/table.hpp"
#include "simd/vector.hpp"

namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL {
namespace {

template <class T>
void forward_as(const LayerNorm& args, int64_t begin, int64_t end) {
  const int64_t n = args.src.cols;
  const T* weight = static_cast<const T*>(args.weight.data);
  const T* bias = static_cast<const T*>(args.bias.data);
  const float share = 1.0f / static_cast<float>(n);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(args.src.data) + r * args.src.row_stride;
    T* y = static_cast<T*>(args.dst.data) + r * args.dst.row_stride;
    const float mean =
        reduce_add(sum_columns(n, [&](F sum, int64_t c, auto at) { return sum + at.get(x + c); })) * share;
    const F centre = broadcast(mean);
    const float variance = reduce_add(sum_columns(n,
                                                  [&](F sum, int64_t c, auto at) {
                                                    const F d = at.only(at.get(x + c) - centre);
                                                    return fma(d, d, sum);
                                                  })) *
                           share;
    const float rstd = 1.0f / __builtin_sqrtf(variance + args.eps);
    const F factor = broadcast(rstd);
    for_columns(n, [&](int64_t c, auto at) {
      at.put(y + c, fma((at.get(x + c) - centre) * factor, at.get(weight + c), at.get(bias + c)));
    });
    if (args.mean.data != nullptr) static_cast<float*>(args.mean.data)[r] = mean;
    if (args.rstd.data != nullptr) static_cast<float*>(args.rstd.data)[r] = rstd;
  }
}

template <class T>
void backward_as(const LayerNormGradient& args, int64_t begin, int64_t end, float* partial) {
  const int64_t n = args.src.cols;
  const T* weight = static_cast<const T*>(args.weight.data);
  float* grad_weight = partial;
  float* grad_bias = partial + n;
  const float share = 1.0f / static_cast<float>(n);
  for_columns(n, [&](int64_t c, auto at) { at.put(grad_weight + c, zero()), at.put(grad_bias + c, zero()); });
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(args.src.data) + r * args.src.row_stride;
    const T* g = static_cast<const T*>(args.grad_dst.data) + r * args.grad_dst.row_stride;
    T* dx = static_cast<T*>(args.grad_src.data) + r * args.grad_src.row_stride;
    const F centre = broadcast(static_cast<const float*>(args.mean.data)[r]);
    const F rstd = broadcast(static_cast<const float*>(args.rstd.data)[r]);
    F along_one = zero(), along_x = zero();
    for_columns(n, [&](int64_t c, auto at) {
      const F grad = at.get(g + c);
      const F normal = at.only((at.get(x + c) - centre) * rstd);
      const F weighted = grad * at.get(weight + c);
      along_one = along_one + weighted;
      along_x = fma(weighted, normal, along_x);
      at.put(grad_weight + c, fma(grad, normal, at.get(grad_weight + c)));
      at.put(grad_bias + c, grad + at.get(grad_bias + c));
    });
    const F mean_one = broadcast(reduce_add(along_one) * share);
    const F mean_x = broadcast(reduce_add(along_x) * share);
    const auto gradient = [&](int64_t c, auto at) {
      const F normal = (at.get(x + c) - centre) * rstd;
      return (fma(at.get(g + c), at.get(weight + c), broadcast(0.0f) - mean_one) - normal * mean_x) * rstd;
    };
    if (args.residual.data != nullptr) {
      const T* residual = static_cast<const T*>(args.residual.data) + r * args.residual.row_stride;
      for_columns(n, [&](int64_t c, auto at) { at.put(dx + c, gradient(c, at) + at.get(residual + c)); });
    } else {
      for_columns(n, [&](int64_t c, auto at) { at.put(dx + c, gradient(c, at)); });
    }
  }
}

void forward(const LayerNorm& args, int64_t begin, int64_t end) {
  with_type(args.src.dtype, [&](auto t) { forward_as<StorageOf<decltype(t)>>(args, begin, end); });
}

void backward(const LayerNormGradient& args, int64_t begin, int64_t end, float* partial) {
  with_type(args.src.dtype, [&](auto t) { backward_as<StorageOf<decltype(t)>>(args, begin, end, partial); });
}

void combine(const float* partial, int64_t parts, int64_t stride, int64_t begin, int64_t end, bool accumulate,
             float* dst) {
  for_columns(end - begin, [&](int64_t c, auto at) {
    F sum = zero();
    for (int64_t b = 0; b < parts; ++b) sum = sum + at.get(partial + b * stride + begin + c);
    at.put(dst + begin + c, accumulate ? at.get(dst + begin + c) + sum : sum);
  });
}

}  // namespace

extern const NormOps kNormOps = {forward, backward, combine};

}  // namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL
