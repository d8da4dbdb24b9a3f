#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>

#include "nccl_launch.hpp"

namespace fake::nccl {
namespace {

float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
float wide(__half x) { return __half2float(x); }
template <class T>
T wide(T x) {
  return x;
}
void store(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }
void store(__half& to, float x) { to = __float2half_rn(x); }
template <class T, class W>
void store(T& to, W x) {
  to = static_cast<T>(x);
}

template <class T>
void reduce_as(const std::vector<const std::byte*>& pieces, ncclRedOp_t reduction, std::uint64_t count,
               std::byte* target) {
  const std::size_t size = pieces.size();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t chunk = static_cast<std::size_t>(i * size / count);
    T sum{};
    for (std::size_t r = 0; r < size; ++r) {
      const T x = reinterpret_cast<const T*>(pieces[(chunk + 1 + r) % size])[i];
      if (r == 0) {
        sum = x;
      } else if (reduction == ncclMax) {
        if (wide(x) > wide(sum)) sum = x;
      } else {
        store(sum, wide(sum) + wide(x));
      }
    }
    reinterpret_cast<T*>(target)[i] = sum;
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      throw std::runtime_error("fake NCCL: no elements of type " + std::to_string(static_cast<int>(type)));
  }
}

void ring_reduce(const std::vector<const std::byte*>& pieces, ncclDataType_t type, ncclRedOp_t reduction,
                 std::uint64_t count, std::byte* target) {
  if (reduction != ncclSum && reduction != ncclMax) throw std::runtime_error("fake NCCL: only sums and maxima");
  switch (type) {
    case ncclUint8:
      return reduce_as<std::uint8_t>(pieces, reduction, count, target);
    case ncclInt32:
      return reduce_as<std::int32_t>(pieces, reduction, count, target);
    case ncclInt64:
      return reduce_as<std::int64_t>(pieces, reduction, count, target);
    case ncclFloat16:
      return reduce_as<__half>(pieces, reduction, count, target);
    case ncclBfloat16:
      return reduce_as<__nv_bfloat16>(pieces, reduction, count, target);
    case ncclFloat32:
      return reduce_as<float>(pieces, reduction, count, target);
    case ncclFloat64:
      return reduce_as<double>(pieces, reduction, count, target);
    default:
      throw std::runtime_error("fake NCCL: no sums of type " + std::to_string(static_cast<int>(type)));
  }
}

}  // namespace fake::nccl
