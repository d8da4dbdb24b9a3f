#include "sdk/plugins/shared_log.hpp"

#include <cstdio>
#include <string>

namespace {
std::string last;  // destroyed at exit, perhaps before the static objects of the plugins
}

void sdk_shared_log(const char* text) {
  std::fprintf(stderr, "%s\n", text);
  last = text;
}
