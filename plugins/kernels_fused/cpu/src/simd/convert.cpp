// Conversion between storage types, and sums over rows.
#include "simd/table.hpp"
#include "simd/vector.hpp"

namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL {
namespace {

template <class S, class D>
void convert_as(const S* src, D* dst, int64_t n) {
  for_columns(n, [&](int64_t c, auto at) { at.put(dst + c, at.get(src + c)); });
}

void convert(const void* src, DType src_type, void* dst, DType dst_type, int64_t n) {
  with_type(src_type, [&](auto s) {
    with_type(dst_type, [&](auto d) {
      convert_as(static_cast<decltype(s)>(const_cast<void*>(src)), static_cast<decltype(d)>(dst), n);
    });
  });
}

void add_bias(const float* src, const void* bias, DType bias_type, void* dst, DType dst_type, int64_t n) {
  if (bias == nullptr) {
    convert(src, DType::f32, dst, dst_type, n);
    return;
  }
  with_type(bias_type, [&](auto b) {
    with_type(dst_type, [&](auto d) {
      using B = StorageOf<decltype(b)>;
      using D = StorageOf<decltype(d)>;
      const B* add = static_cast<const B*>(bias);
      D* to = static_cast<D*>(dst);
      for_columns(n, [&](int64_t c, auto at) { at.put(to + c, at.get(src + c) + at.get(add + c)); });
    });
  });
}

template <class T>
void column_sum_as(const View& src, float* dst, bool accumulate) {
  const T* data = static_cast<const T*>(src.data);
  for_columns(src.cols, [&](int64_t c, auto at) {
    F total = accumulate ? at.get(dst + c) : zero();
    for (int64_t first = 0; first < src.rows; first += kSumRows) {
      const int64_t last = first + kSumRows < src.rows ? first + kSumRows : src.rows;
      F part = zero();
      for (int64_t r = first; r < last; ++r) part = part + at.get(data + r * src.row_stride + c);
      total = total + part;
    }
    at.put(dst + c, total);
  });
}

void column_sum(const View& src, float* dst, bool accumulate) {
  with_type(src.dtype, [&](auto t) { column_sum_as<StorageOf<decltype(t)>>(src, dst, accumulate); });
}

}  // namespace

extern const ConvertOps kConvertOps = {convert, add_bias, column_sum};

}  // namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL
