#include "comm/combine.hpp"

#include <algorithm>

namespace espalier::comm {
namespace {

constexpr std::int64_t kBlock = 1024;  // wide sums of a block stay in the first-level cache

template <class T>
struct Wide {
  using Type = T;
  static T widen(T x) { return x; }
  static T narrow(T x) { return x; }
};
template <class T>
struct Wide16 {
  using Type = float;
  static float widen(T x) { return to_float(x); }
  static T narrow(float x) { return from_float<T>(x); }
};
template <>
struct Wide<BFloat16> : Wide16<BFloat16> {};
template <>
struct Wide<Float16> : Wide16<Float16> {};

template <class T, class Join>
void combine_blocks(std::span<const void* const> pieces, T* dst, std::int64_t elements, Join join) {
  typename Wide<T>::Type sum[kBlock];
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, elements - begin);
    const T* first = static_cast<const T*>(pieces[0]) + begin;
    for (std::int64_t i = 0; i < n; ++i) sum[i] = Wide<T>::widen(first[i]);
    for (std::size_t r = 1; r < pieces.size(); ++r) {
      const T* piece = static_cast<const T*>(pieces[r]) + begin;
      for (std::int64_t i = 0; i < n; ++i) sum[i] = join(sum[i], Wide<T>::widen(piece[i]));
    }
    for (std::int64_t i = 0; i < n; ++i) dst[begin + i] = Wide<T>::narrow(sum[i]);
  }
}

template <class T>
void combine_as(Reduce how, std::span<const void* const> pieces, void* dst, std::int64_t elements) {
  if (how == Reduce::max) {
    // NOLINTNEXTLINE(misc-redundant-expression): b != b asks for a NaN
    combine_blocks(pieces, static_cast<T*>(dst), elements, [](auto a, auto b) { return b > a || b != b ? b : a; });
  } else {
    combine_blocks(pieces, static_cast<T*>(dst), elements,
                   [](auto a, auto b) { return static_cast<decltype(a)>(a + b); });
  }
}

}  // namespace

void combine(Reduce how, DType dtype, std::span<const void* const> pieces, void* dst, std::int64_t elements) {
  switch (dtype) {
    case DType::f32:
      return combine_as<float>(how, pieces, dst, elements);
    case DType::bf16:
      return combine_as<BFloat16>(how, pieces, dst, elements);
    case DType::f16:
      return combine_as<Float16>(how, pieces, dst, elements);
    case DType::f64:
      return combine_as<double>(how, pieces, dst, elements);
    case DType::i32:
      return combine_as<std::int32_t>(how, pieces, dst, elements);
    case DType::i64:
      return combine_as<std::int64_t>(how, pieces, dst, elements);
    case DType::u8:
      return combine_as<std::uint8_t>(how, pieces, dst, elements);
  }
}

}  // namespace espalier::comm
