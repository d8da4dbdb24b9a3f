#include "support/heap_calls.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> calls{0};
}  // namespace

// All forms that pair with the plain operator delete, so that memory never crosses to a sanitizer's own.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  calls += 1;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(std::size_t bytes) {
  if (void* data = operator new(bytes, std::nothrow)) return data;
  throw std::bad_alloc();
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return operator new(bytes, std::nothrow); }
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }

namespace espalier::testing_support {

std::int64_t heap_calls() { return calls; }

}  // namespace espalier::testing_support
