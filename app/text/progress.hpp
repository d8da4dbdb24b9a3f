#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace espalier::app {

/// Progress over bytes on standard error: how much of how much, rate, time left. On a terminal one line that is written
/// over five times a second, elsewhere a line every ten seconds.
class ByteProgress {
 public:
  /// @param total  0: unknown.
  ByteProgress(std::string what, std::int64_t total);
  /// Clears the terminal's line.
  ~ByteProgress();
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  void add(std::int64_t bytes);
  /// Bytes that were done before: they count as done, not for the rate.
  void skip(std::int64_t bytes);
  double seconds() const;

 private:
  void show(double seconds);

  std::string what_;
  std::int64_t total_, done_ = 0, skipped_ = 0;
  bool terminal_;
  bool shown_ = false;
  double next_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// "12.3 MB", "640 bytes".
std::string shown_bytes(double bytes);

}  // namespace espalier::app
