#include "text/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include <fmt/format.h>

namespace espalier::app {
namespace {

constexpr double kTerminalInterval = 0.2, kLogInterval = 10;  // seconds

std::string shown_time(double seconds) {
  const auto whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

}  // namespace

std::string shown_bytes(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} bytes", bytes);
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

ByteProgress::ByteProgress(std::string what, std::int64_t total)
    : what_(std::move(what)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      next_(terminal_ ? kTerminalInterval : kLogInterval) {}

ByteProgress::~ByteProgress() {
  if (terminal_ && shown_) std::cerr << "\r\x1b[K" << std::flush;
}

double ByteProgress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void ByteProgress::add(std::int64_t bytes) {
  done_ += bytes;
  const double now = seconds();
  if (now < next_) return;
  next_ = now + (terminal_ ? kTerminalInterval : kLogInterval);
  show(now);
}

void ByteProgress::skip(std::int64_t bytes) {
  done_ += bytes;
  skipped_ += bytes;
}

void ByteProgress::show(double seconds) {
  const double rate = std::max(1.0, static_cast<double>(done_ - skipped_)) / seconds;
  std::string text = fmt::format("{}: {}", what_, shown_bytes(static_cast<double>(done_)));
  if (total_ >= done_ && total_ > 0) {
    const double share = static_cast<double>(done_) / static_cast<double>(total_);
    text += fmt::format(" of {} ({:.0f} %), {}/s, {} left", shown_bytes(static_cast<double>(total_)), 100 * share,
                        shown_bytes(rate), shown_time(static_cast<double>(total_ - done_) / rate));
  } else {
    text += fmt::format(", {}/s", shown_bytes(rate));
  }
  std::cerr << (terminal_ ? "\r\x1b[K" : "") << text << (terminal_ ? "" : "\n") << std::flush;
  shown_ = true;
}

}  // namespace espalier::app
