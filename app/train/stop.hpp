#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <iterator>
#include <string>

namespace espalier::app {

/// Why a run ends before its last step. Ordered: when ranks see different reasons in one step, the largest counts for all.
enum class StopReason : std::uint8_t { none = 0, exit_interval = 1, exit_duration = 2, signal = 3, records = 4 };

/// Catches what a user, a closed terminal or a scheduler sends (SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU) from construction to
/// destruction: the first one asks for a stop at the next step border, where the state is saved; handlers that were there before are
/// called afterwards. A second SIGINT ends the process at once. SIGHUP stays ignored where the process was started so (nohup). SIGPIPE is
/// ignored. One object a process.
class StopSignals {
 public:
  /// @param said  written to standard error, as it is, when the first one comes: a step may be long. Null: nothing. Must outlive the object.
  explicit StopSignals(const char* said = nullptr);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Number of the signal that came first, 0 for none.
  static int received();

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
  struct sigaction previous_[std::size(kSignals)] {};
};

/// What this rank alone would do after a step; the world agrees on the maximum.
class StopRules {
 public:
  /// @param minutes  wall-clock limit from now, 0 for none.
  /// @param interval  stop after a step divisible by this, 0 for never.
  StopRules(double minutes, std::int64_t interval);
  StopReason after_step(std::int64_t step) const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double seconds_;
  std::int64_t interval_;
};

/// "signal 15 (Terminated)", "the time limit", …
std::string to_string(StopReason reason);

}  // namespace espalier::app
