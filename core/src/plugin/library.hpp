#pragma once

#include <filesystem>
#include <memory>

namespace espalier {

struct PluginDescriptor;
class Library;

/// Maps a plugin's file with its dependencies and binds every symbol now. A file that is mapped already is not mapped
/// again; none is ever unmapped, since threads, thread-local objects and unique symbols of a plugin outlive its
/// objects.
/// @throws PluginError with the dynamic linker's own text; when loading changed the floating-point mode of this thread,
/// which is
///         put back.
std::shared_ptr<const Library> open_library(const std::filesystem::path& path);

/// The descriptor that the library exports, or null.
const PluginDescriptor* find_descriptor(const Library& library);

/// "undefined symbol: _ZN1a1bEv" becomes "undefined symbol: _ZN1a1bEv [a::b()]".
std::string demangle_symbols(std::string_view text);

/// Readable name of the type of the exception being handled.
std::string current_exception_type();

}  // namespace espalier
