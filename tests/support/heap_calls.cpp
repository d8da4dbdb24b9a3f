#include "support/heap_calls.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> calls{0};
}  // namespace

void* operator new(std::size_t bytes) {
  calls += 1;
  if (void* data = std::malloc(bytes == 0 ? 1 : bytes)) return data;
  throw std::bad_alloc();
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }

namespace espalier::testing_support {

std::int64_t heap_calls() { return calls; }

}  // namespace espalier::testing_support
