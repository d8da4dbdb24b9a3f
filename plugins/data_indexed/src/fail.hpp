#pragma once
#include <espalier/error.hpp>
#include <string>
#include <string_view>

namespace espalier::data_indexed {

/// Throws IoError "PATH: what was found and what to do". `error_number` is an errno value, 0 where no call failed.
[[noreturn]] inline void fail_io(std::string_view path, std::string_view what, int error_number = 0) {
  if (error_number != 0) {
    throw IoError(path, what, error_number);
  }
  throw IoError(std::string(path) + ": " + std::string(what));
}

/// Throws ConfigError "SUBJECT: what cannot be obeyed and why"; the caller who knows the recipe adds file and line.
[[noreturn]] inline void fail_config(std::string_view subject, std::string_view what) {
  throw ConfigError(std::string(subject) + ": " + std::string(what));
}

}  // namespace espalier::data_indexed
