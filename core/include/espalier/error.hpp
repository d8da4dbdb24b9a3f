#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "espalier/export.hpp"

namespace espalier {

/// Exit codes of `trainer`, documented in docs/exit-codes.md. Every error class below names its own.
enum class ExitCode : int {
  ok = 0,
  internal = 1,       ///< our own bug, or an exception nobody classified
  usage = 2,          ///< command line or recipe
  plugin = 3,         ///< a plugin could not be found, loaded, trusted or created
  io = 4,             ///< a file: data, tokenizer, model, checkpoint, disk full
  communication = 5,  ///< MPI, NCCL, a lost rank, ranks that disagree
  device = 6,         ///< the backend or machine lacks what was asked
  numerics = 7,       ///< NaN policy or comparison above its tolerance
  interrupted = 75,   ///< stopped on request (signal, time limit) with the state saved: run again to resume
};

/// What ends a run or a request. The message is one line: what was asked, what was found, what to do.
class ESPALIER_API Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message);
  ~Error() override;
  ExitCode exit_code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// Recipe or command line. The message starts with `file:line:column: key.path: `.
class ESPALIER_API ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message);
  ~ConfigError() override;
};

/// A plugin. The message names the plugin, its path, and the stage that failed.
class ESPALIER_API PluginError : public Error {
 public:
  explicit PluginError(const std::string& message);
  ~PluginError() override;
};

/// Shapes or dtypes of views that do not fit together.
class ESPALIER_API ShapeError : public Error {
 public:
  explicit ShapeError(const std::string& message);
  ~ShapeError() override;
};

/// A file. The message names its full path.
class ESPALIER_API IoError : public Error {
 public:
  explicit IoError(const std::string& message);
  /// Appends the text of an errno value: "path: what: No space left on device (errno 28)".
  IoError(std::string_view path, std::string_view what, int errno_value);
  ~IoError() override;
};

/// Communication. The message names group, rank and operation.
class ESPALIER_API CommError : public Error {
 public:
  explicit CommError(const std::string& message);
  ~CommError() override;
};

/// The machine or the backend lacks something.
class ESPALIER_API DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message);
  ~DeviceError() override;
};

/// Numbers: a stop by the NaN policy, or a comparison beyond its tolerance.
class ESPALIER_API NumericsError : public Error {
 public:
  explicit NumericsError(const std::string& message);
  ~NumericsError() override;
};

/// The name in `known` nearest to `asked` by edit distance, or "" when none is near. For "did you mean" texts.
template <class Range>
std::string nearest_name(std::string_view asked, const Range& known);

/// Damerau-Levenshtein distance (optimal string alignment).
ESPALIER_API std::size_t edit_distance(std::string_view a, std::string_view b);

template <class Range>
std::string nearest_name(std::string_view asked, const Range& known) {
  std::string best;
  std::size_t best_distance = 1 + asked.size() / 2;  // farther than half the word is no help
  for (const auto& name : known) {
    const std::size_t distance = edit_distance(asked, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = std::string(name);
    }
  }
  return best;
}

/// Ends the process with a message about our own bug. Used by ESPALIER_ASSERT only.
[[noreturn]] ESPALIER_API void assertion_failed(const char* expression, const char* file, int line) noexcept;

}  // namespace espalier

/// For our own bugs only; what a user can cause throws an Error.
#define ESPALIER_ASSERT(expression) \
  (static_cast<bool>(expression) ? void(0) : ::espalier::assertion_failed(#expression, __FILE__, __LINE__))
