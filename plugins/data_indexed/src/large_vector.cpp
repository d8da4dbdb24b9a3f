#include "large_vector.hpp"

#include <sys/mman.h>

#include <cstdint>

namespace espalier::data_indexed {

void wish_large_pages(void* data, std::size_t bytes) {
  constexpr std::uintptr_t kPage = std::uintptr_t{2} << 20;
  const auto begin = (reinterpret_cast<std::uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / kPage * kPage;
  if (begin < end) {
    static_cast<void>(::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
  }
}

}  // namespace espalier::data_indexed
