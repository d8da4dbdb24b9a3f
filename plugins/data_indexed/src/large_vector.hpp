#pragma once
#include <cstddef>
#include <vector>

namespace espalier::data_indexed {

/// Asks the kernel for large pages under a range nobody has touched yet: a shuffle of an array larger than the caches
/// otherwise misses the page tables at every swap. Only a wish; without them all works, slower.
void wish_large_pages(void* data, std::size_t bytes);

/// `count` zeros, on large pages where they can be had.
template <typename T>
std::vector<T> large_vector(std::size_t count) {
  std::vector<T> elements;
  elements.reserve(count);
  wish_large_pages(elements.data(), count * sizeof(T));
  elements.resize(count);
  return elements;
}

}  // namespace espalier::data_indexed
