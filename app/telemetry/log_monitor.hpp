#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>

#include "espalier/monitor.hpp"
#include "telemetry/record_file.hpp"

namespace espalier::app {

/// What a person watches: Megatron-style lines in the run's train.log, and on standard error either one progress line that is
/// redrawn (a terminal) or the same lines every `interval` steps (a file, a scheduler's log).
class LogMonitor final : public Monitor {
 public:
  struct Settings {
    std::int64_t interval = 1;      ///< steps between lines
    std::int64_t total_steps = 0;
    std::int64_t total_samples = 0;
    bool show_scale = false;        ///< FP16 only
    bool console = true;
  };
  LogMonitor(const std::filesystem::path& path, const Settings& settings);
  ~LogMonitor() override;

  void metrics(const Progress& progress, std::span<const Metric> metrics) override;
  void event(const Progress& progress, std::string_view kind, std::string_view text) override;
  void flush() override;
  void resume(const Progress& progress) override;

 private:
  std::size_t compose(const Progress& progress, std::span<const Metric> metrics);
  void draw(const Progress& progress, std::span<const Metric> metrics);
  void end_progress_line();

  RecordFile file_;
  Settings settings_;
  bool terminal_ = false;
  bool drawn_ = false;
  double interval_time_ = 0;      ///< seconds since the last line; the first step of a process counts only in a line of its own
  double interval_samples_ = 0;   ///< in that time
  std::int64_t timed_steps_ = 0;  ///< in that time
  std::int64_t interval_steps_ = 0;
  bool first_ = false;            ///< the first step is all there is since the last line
  bool seen_ = false;             ///< any step
  double loss_sum_ = 0;
  std::chrono::steady_clock::time_point last_draw_{};
  std::array<char, 1024> line_{};
};

}  // namespace espalier::app
