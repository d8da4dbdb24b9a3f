// Counts operator new of the whole process; add support/heap_calls.cpp to the sources of the test.
#pragma once

#include <cstdint>

namespace espalier::testing_support {

/// Calls of operator new so far: of the test, of core and of plugins linked with it. C libraries (malloc) do not count.
std::int64_t heap_calls();

}  // namespace espalier::testing_support
