#pragma once

// Included by kernel sources in place of the CUDA runtime when the host compiler builds them: the same names, for the
// emulator.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "cuda_emulation/block.hpp"

// As a default argument: the place of the call.
#define ESPALIER_HERE ::std::source_location::current()

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __forceinline__
#define __forceinline__ inline
// Plain declarations would be neither poisoned nor checked.
#undef __shared__
#define __shared__ declare_shared_memory_with_SMEM_ARRAY_or_SMEM_DYN

#define threadIdx (::cuda_emulation::current->index)
#define blockIdx (::cuda_emulation::block_index)
#define blockDim (::cuda_emulation::block_size)
#define gridDim (::cuda_emulation::grid_size)
#define warpSize 32

namespace cuda_emulation {

/// An element of shared memory: reading and writing it is checked.
template <class T>
class Element {
 public:
  Element(SharedArray* array, std::size_t index, Location at) : array_(array), index_(index), at_(at) {}
  Element(const Element&) = default;
  operator T() const {
    touch(*array_, index_, false, at_);
    T value;
    std::memcpy(static_cast<void*>(&value), array_->bytes.data() + index_ * sizeof(T), sizeof(T));
    return value;
  }
  const Element& operator=(T value) const {
    touch(*array_, index_, true, at_);
    std::memcpy(array_->bytes.data() + index_ * sizeof(T), static_cast<const void*>(&value), sizeof(T));
    return *this;
  }
  const Element& operator=(const Element& other) const { return *this = static_cast<T>(other); }
  const Element& operator+=(T value) const { return *this = static_cast<T>(static_cast<T>(*this) + value); }
  const Element& operator-=(T value) const { return *this = static_cast<T>(static_cast<T>(*this) - value); }
  const Element& operator*=(T value) const { return *this = static_cast<T>(static_cast<T>(*this) * value); }

 private:
  SharedArray* array_;
  std::size_t index_;
  Location at_;
};

/// An index that knows where it was written down.
struct Index {
  std::size_t value;
  Location at;
  template <class I, class = std::enable_if_t<std::is_integral_v<I>>>
  Index(I index, Location here = ESPALIER_HERE)
      : value(static_cast<std::size_t>(index)), at(here) {}  // NOLINT: implicit by design
};

/// Stands for a pointer to shared memory; helpers of kernels take it as a template parameter.
template <class T>
class SharedPointer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SharedPointer(SharedArray* array, std::size_t first, std::size_t count)
      : array_(array), first_(first), count_(count) {}
  Element<T> operator[](Index i) const {
    if (i.value >= count_) {
      fail("shared memory index " + std::to_string(static_cast<std::ptrdiff_t>(i.value)) + " of " +
               std::to_string(count_),
           i.at);
    }
    return {array_, first_ + i.value, i.at};
  }
  Element<T> operator*() const { return (*this)[0]; }
  SharedPointer operator+(Index i) const {
    if (i.value > count_) {
      fail("shared memory pointer moved by " + std::to_string(static_cast<std::ptrdiff_t>(i.value)) + " of " +
               std::to_string(count_),
           i.at);
    }
    return {array_, first_ + i.value, count_ - i.value};
  }

 private:
  SharedArray* array_;
  std::size_t first_, count_;
};

template <class T>
SharedPointer<T> shared_array(SharedArray& array, std::size_t count, Location at = ESPALIER_HERE) {
  attach(array, sizeof(T), count, at);
  return {&array, 0, count};
}

template <class T>
SharedPointer<T> dynamic_shared(Location at = ESPALIER_HERE) {
  SharedArray& array = dynamic_array(sizeof(T), at);
  return {&array, 0, array.count};
}

template <class T>
std::uint64_t to_slot(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t slot = 0;
  std::memcpy(&slot, static_cast<const void*>(&value), sizeof(T));
  return slot;
}

/// @param source  lane to read, or the own lane when the shuffle leaves it as it is.
template <class T>
T shuffle(unsigned mask, T value, unsigned source, Collective kind, Location at) {
  const std::uint64_t* slots = meet(mask, to_slot(value), kind, at);
  if ((mask >> source & 1u) == 0)
    fail("a shuffle reads lane " + std::to_string(source) + ", which is outside its mask", at);
  T result;
  std::memcpy(static_cast<void*>(&result), &slots[source], sizeof(T));
  return result;
}

/// A vector access: faults on the device when the address is no multiple of the size.
template <class V>
const V* aligned(const void* pointer, Location at = ESPALIER_HERE) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % sizeof(V) != 0) {
    fail("an access of " + std::to_string(sizeof(V)) + " bytes at an address that is no multiple of them", at);
  }
  return static_cast<const V*>(pointer);
}
template <class V>
V* aligned(void* pointer, Location at = ESPALIER_HERE) {
  return const_cast<V*>(aligned<V>(static_cast<const void*>(pointer), at));
}

}  // namespace cuda_emulation

#define SMEM_ARRAY(T, name, N)                                     \
  static constinit ::cuda_emulation::SharedArray name##_storage{}; \
  const auto name = ::cuda_emulation::shared_array<T>(name##_storage, (N))
#define SMEM_DYN(T, name) const auto name = ::cuda_emulation::dynamic_shared<T>()
#define ALIGNED_ACCESS(V, pointer) (*::cuda_emulation::aligned<V>(pointer))
#define ALIGNED_STORE(V, pointer, value) static_cast<void>(*::cuda_emulation::aligned<V>(pointer) = (value))

#include "cuda_emulation/intrinsics.hpp"
