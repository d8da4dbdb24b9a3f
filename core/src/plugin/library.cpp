// The only user of Boost.DLL.
#include "plugin/library.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <cstdlib>
#include <map>
#include <string>
#include <typeinfo>

#include "espalier/error.hpp"
#include "espalier/plugin.hpp"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace espalier {

class Library {
 public:
  explicit Library(const std::filesystem::path& path)
      : library_(path, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local) {}
  const boost::dll::shared_library& library() const { return library_; }

 private:
  boost::dll::shared_library library_;
};

namespace {

constexpr const char* kEntry = "espalier_plugin_v1";

struct Mapped {
  std::shared_ptr<const Library> library;
  bool changed_mode = false;  // refused, at every attempt: initialisers run only once
};

// Never destroyed: a library is mapped until the process ends.
std::map<std::filesystem::path, Mapped>& library_table() {
  static auto* const table = new std::map<std::filesystem::path, Mapped>();
  return *table;
}

// Rounding and flush-to-zero bits of this thread; code linked with -ffast-math sets them while it is loaded.
unsigned floating_point_mode() {
#if defined(__SSE__)
  return _mm_getcsr() & ~0x3fU;  // without the sticky exception flags
#else
  return 0;
#endif
}

void restore_floating_point_mode([[maybe_unused]] unsigned mode) {
#if defined(__SSE__)
  _mm_setcsr(mode);
#endif
}

// Boost wraps the dynamic linker's text: "… failed (dlerror system message: TEXT): Bad file descriptor".
std::string linker_text(std::string text, const std::string& path) {
  constexpr std::string_view kBefore = "dlerror system message: ";
  if (const auto start = text.find(kBefore); start != std::string::npos) {
    text.erase(0, start + kBefore.size());
    if (const auto end = text.rfind("): "); end != std::string::npos) text.erase(end);
  }
  if (text.starts_with(path + ": ")) text.erase(0, path.size() + 2);
  return demangle_symbols(text);
}

std::string demangle(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? std::string(name.get()) : std::string();
}

}  // namespace

std::string demangle_symbols(std::string_view text) {
  std::string result(text);
  const auto start = result.find("_Z");
  if (start == std::string::npos) return result;
  const auto end = std::min(result.find_first_of(" ,;()\t\n", start), result.size());
  const std::string readable = demangle(result.substr(start, end - start));
  if (!readable.empty()) result.insert(end, " [" + readable + "]");
  return result;
}

std::string current_exception_type() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "unknown";
  const std::string readable = demangle(type->name());
  return readable.empty() ? type->name() : readable;
}

std::shared_ptr<const Library> open_library(const std::filesystem::path& path) {
  auto& table = library_table();
  std::error_code ignored;
  const auto canonical = std::filesystem::canonical(path, ignored);
  const auto& key = canonical.empty() ? path : canonical;
  auto known = table.find(key);
  if (known == table.end()) {
    const unsigned mode = floating_point_mode();
    Mapped mapped;
    try {
      mapped.library = std::make_shared<const Library>(path);
    } catch (const std::exception& error) {
      restore_floating_point_mode(mode);
      throw PluginError("the dynamic linker refuses it: " + linker_text(error.what(), path.string()));
    }
    mapped.changed_mode = floating_point_mode() != mode;
    restore_floating_point_mode(mode);
    known = table.emplace(key, std::move(mapped)).first;
  }
  if (known->second.changed_mode) {
    throw PluginError(
        "changes the floating-point mode of the whole process while it is loaded; link it without -ffast-math");
  }
  return known->second.library;
}

const PluginDescriptor* find_descriptor(const Library& library) {
  if (!library.library().has(kEntry)) return nullptr;
  return &library.library().get<const PluginDescriptor>(kEntry);
}

}  // namespace espalier
