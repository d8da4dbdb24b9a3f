#include "heap_watch.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <set>
#include <string_view>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

constexpr int kFrames = 24;
constexpr int kMost = 512;

struct Call {
  std::array<void*, kFrames> frames;
  int count;
};

thread_local bool t_armed = false;
thread_local bool t_inside = false;
std::array<Call, kMost> g_calls;
int g_count = 0;

__attribute__((noinline)) void record() {
  if (!t_armed || t_inside) return;
  t_inside = true;
  if (g_count < kMost) g_calls[static_cast<std::size_t>(g_count)].count = backtrace(g_calls[static_cast<std::size_t>(g_count)].frames.data(), kFrames);
  ++g_count;
  t_inside = false;
}

/// Libraries that allocate on behalf of whoever called them.
bool passes_on(std::string_view library) {
  for (const std::string_view name : {"libc.so", "libstdc++", "libgcc", "libm.so", "ld-linux", "libfmt", "libspdlog"}) {
    if (library.find(name) != std::string_view::npos) return true;
  }
  return false;
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// Library and symbol of the first caller that does not pass calls on.
std::pair<std::string, std::string> origin(const Call& call) {
  for (int i = 2; i < call.count; ++i) {  // 0 and 1: record and the replaced function
    Dl_info info{};
    if (dladdr(call.frames[static_cast<std::size_t>(i)], &info) == 0 || info.dli_fname == nullptr) continue;
    if (passes_on(info.dli_fname)) continue;
    return {std::string(base_name(info.dli_fname)), info.dli_sname != nullptr ? info.dli_sname : "?"};
  }
  return {"unknown", "?"};
}

bool is_ours(std::string_view library) {
  for (const std::string_view name : {"libespalier_core", "heap_in_steps_test", "libkernels_", "liboptim_", "libparallel_", "libdata_"}) {
    if (library.starts_with(name)) return true;
  }
  return library == "unknown";  // cannot be told: counted against us
}

}  // namespace

extern "C" {
__attribute__((noinline)) void* malloc(std::size_t bytes) {
  record();
  return __libc_malloc(bytes);
}
__attribute__((noinline)) void* calloc(std::size_t n, std::size_t bytes) {
  record();
  return __libc_calloc(n, bytes);
}
__attribute__((noinline)) void* realloc(void* old, std::size_t bytes) {
  record();
  return __libc_realloc(old, bytes);
}
__attribute__((noinline)) void* memalign(std::size_t alignment, std::size_t bytes) {
  record();
  return __libc_memalign(alignment, bytes);
}
__attribute__((noinline)) void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  record();
  return __libc_memalign(alignment, bytes);
}
__attribute__((noinline)) int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) {
  record();
  *result = __libc_memalign(alignment, bytes);
  return *result == nullptr ? 12 : 0;
}
__attribute__((noinline)) void free(void* pointer) {
  if (pointer != nullptr) record();
  __libc_free(pointer);
}
}

namespace espalier::heap_watch {

void arm() {
  void* warm[4];
  backtrace(warm, 4);  // its first call loads the unwinder
  g_count = 0;
  t_armed = true;
}

void disarm() { t_armed = false; }

int calls() { return g_count; }

std::vector<std::string> own_calls() {
  std::vector<std::string> lines;
  for (int i = 0; i < g_count && i < kMost; ++i) {
    const auto [library, symbol] = origin(g_calls[static_cast<std::size_t>(i)]);
    if (is_ours(library)) lines.push_back(library + ": " + symbol);
  }
  return lines;
}

std::vector<std::string> other_libraries() {
  std::set<std::string> names;
  for (int i = 0; i < g_count && i < kMost; ++i) {
    const auto [library, symbol] = origin(g_calls[static_cast<std::size_t>(i)]);
    if (!is_ours(library)) names.insert(library);
  }
  return {names.begin(), names.end()};
}

}  // namespace espalier::heap_watch
