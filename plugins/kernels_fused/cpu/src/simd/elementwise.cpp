// Element by element: GeLU, residual sums with dropout, conversions.
#include "simd/math.hpp"
#include "simd/philox.hpp"
#include "simd/table.hpp"

namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL {
namespace {

template <class T>
const T* row_of(const View& view, int64_t r) {
  return static_cast<const T*>(view.data) + r * view.row_stride;
}
template <class T>
T* row_to(const View& view, int64_t r) {
  return static_cast<T*>(view.data) + r * view.row_stride;
}

/// Null where there is none.
template <class T>
const T* bias_of(const View& bias) {
  return bias.cols == 0 ? nullptr : static_cast<const T*>(bias.data);
}
template <class T, class At>
[[gnu::always_inline]] inline F biased(const T* x, const T* bias, int64_t c, At at) {
  return bias == nullptr ? at.get(x + c) : at.get(x + c) + at.get(bias + c);
}

void bias_gelu(const View& src, const View& bias, const View& dst, int64_t begin, int64_t end) {
  with_type(src.dtype, [&](auto t) {
    using T = StorageOf<decltype(t)>;
    const T* b = bias_of<T>(bias);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = row_of<T>(src, r);
      T* y = row_to<T>(dst, r);
      for_columns(src.cols, [&](int64_t c, auto at) { at.put(y + c, gelu(biased(x, b, c, at))); });
    }
  });
}

void bias_gelu_backward(const View& grad_dst, const View& src, const View& bias, const View& grad_src, int64_t begin,
                        int64_t end) {
  with_type(src.dtype, [&](auto t) {
    using T = StorageOf<decltype(t)>;
    const T* b = bias_of<T>(bias);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = row_of<T>(src, r);
      const T* g = row_of<T>(grad_dst, r);
      T* dx = row_to<T>(grad_src, r);
      for_columns(src.cols,
                  [&](int64_t c, auto at) { at.put(dx + c, at.get(g + c) * gelu_derivative(biased(x, b, c, at))); });
    }
  });
}

/// Calls body(column, at, mask) over a row, with the mask of the elements that are kept.
template <class Body>
void for_kept(const Dropout& dropout, int64_t row, int64_t n, Body&& body) {
  const int64_t flat = dropout.first_token + row;
  const auto sample = static_cast<std::uint64_t>(dropout.first_sample + flat / dropout.seq);
  const auto token = static_cast<std::uint32_t>(flat % dropout.seq);
  const std::uint32_t threshold = dropout.threshold();
  const std::uint32_t key0 = *(&dropout.key[0]), key1 = *(&dropout.key[0] + 1);
  for (int64_t first = 0; first < n; first += kMaskElements) {
    const MaskBits bits = kept(key0, key1, static_cast<std::uint32_t>(first / 4), token,
                               static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32), threshold);
    for (int i = 0; i < 4; ++i) {
      const int64_t c = first + i * kWidth;
      if (c + kWidth <= n) {
        body(c, Whole{}, part_of(bits, i));
      } else if (c < n) {
        body(c, Tail{n - c}, part_of(bits, i));
      }
    }
  }
}

void bias_dropout_add(const View& src, const View& bias, const View& residual, const Dropout& dropout, const View& dst,
                      int64_t begin, int64_t end) {
  const F factor = broadcast(dropout.scale());
  with_type(src.dtype, [&](auto t) {
    using T = StorageOf<decltype(t)>;
    const T* b = bias_of<T>(bias);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = row_of<T>(src, r);
      const T* skip = row_of<T>(residual, r);
      T* y = row_to<T>(dst, r);
      const auto branch = [&](int64_t c, auto at) { return biased(x, b, c, at); };
      if (dropout.p > 0.0f) {
        for_kept(dropout, r, src.cols, [&](int64_t c, auto at, Mask mask) {
          at.put(y + c, at.get(skip + c) + keep(mask, branch(c, at) * factor));
        });
      } else {
        for_columns(src.cols, [&](int64_t c, auto at) { at.put(y + c, at.get(skip + c) + branch(c, at)); });
      }
    }
  });
}

void dropout_backward(const View& grad_dst, const Dropout& dropout, const View& grad_src, int64_t begin, int64_t end) {
  const F factor = broadcast(dropout.scale());
  with_type(grad_dst.dtype, [&](auto t) {
    using T = StorageOf<decltype(t)>;
    for (int64_t r = begin; r < end; ++r) {
      const T* g = row_of<T>(grad_dst, r);
      T* dx = row_to<T>(grad_src, r);
      if (dropout.p > 0.0f) {
        for_kept(dropout, r, grad_dst.cols,
                 [&](int64_t c, auto at, Mask mask) { at.put(dx + c, keep(mask, at.get(g + c) * factor)); });
      } else if (g != dx) {
        for_columns(grad_dst.cols, [&](int64_t c, auto at) { at.put(dx + c, at.get(g + c)); });
      }
    }
  });
}

void add(const View& a, const View& b, const View& dst, int64_t begin, int64_t end) {
  const bool two = b.data != nullptr && b.rows != 0 && b.cols != 0;
  with_type(a.dtype, [&](auto ta) {
    with_type(two ? b.dtype : a.dtype, [&](auto tb) {
      with_type(dst.dtype, [&](auto td) {
        using A = StorageOf<decltype(ta)>;
        using B = StorageOf<decltype(tb)>;
        using D = StorageOf<decltype(td)>;
        for (int64_t r = begin; r < end; ++r) {
          const A* x = row_of<A>(a, r);
          D* to = row_to<D>(dst, r);
          if (two) {
            const B* y = row_of<B>(b, r);
            for_columns(a.cols, [&](int64_t c, auto at) { at.put(to + c, at.get(x + c) + at.get(y + c)); });
          } else {
            for_columns(a.cols, [&](int64_t c, auto at) { at.put(to + c, at.get(x + c)); });
          }
        }
      });
    });
  });
}

void scale(const View& src, float factor, const View& dst, int64_t begin, int64_t end) {
  const F by = broadcast(factor);
  with_type(src.dtype, [&](auto ts) {
    with_type(dst.dtype, [&](auto td) {
      using S = StorageOf<decltype(ts)>;
      using D = StorageOf<decltype(td)>;
      for (int64_t r = begin; r < end; ++r) {
        const S* x = row_of<S>(src, r);
        D* to = row_to<D>(dst, r);
        for_columns(src.cols, [&](int64_t c, auto at) { at.put(to + c, at.get(x + c) * by); });
      }
    });
  });
}

void accumulate(const void* src, DType src_type, float* dst, int64_t n) {
  with_type(src_type, [&](auto t) {
    using T = StorageOf<decltype(t)>;
    const T* x = static_cast<const T*>(src);
    for_columns(n, [&](int64_t c, auto at) { at.put(dst + c, at.get(dst + c) + at.get(x + c)); });
  });
}

}  // namespace

extern const ElementwiseOps kElementwiseOps = {bias_gelu, bias_gelu_backward, bias_dropout_add, dropout_backward, add,
                                               scale,     accumulate};

}  // namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL
