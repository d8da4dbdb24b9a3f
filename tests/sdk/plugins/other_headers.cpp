// Built with other public headers, and with a static initialiser that leaves a trace if it ever runs.
#include <cstdio>
#include <cstdlib>

#include "sdk/plugins/bad.hpp"

#undef ESPALIER_HEADER_HASH
#define ESPALIER_HEADER_HASH "0123456789abcdef"

namespace {
const bool kTrace = [] {
  if (const char* const path = std::getenv("SDK_TRACE_FILE"); path != nullptr) {
    if (std::FILE* const file = std::fopen(path, "w"); file != nullptr) std::fclose(file);
  }
  return true;
}();
}  // namespace

ESPALIER_PLUGIN("sdk_other_headers", "1.0.0", "Apache-2.0", "Built with other headers", kFactories);
