#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace espalier::app {

/// The whole file. @throws IoError with its full path.
std::string read_content(const std::filesystem::path& file);

/// XXH3 of the bytes, as 16 hexadecimal digits.
std::string content_hash(std::string_view bytes);

}  // namespace espalier::app
