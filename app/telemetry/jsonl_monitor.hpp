#pragma once

#include <array>
#include <filesystem>

#include "espalier/monitor.hpp"
#include "telemetry/record_file.hpp"

namespace espalier::app {

/// metrics.jsonl: one JSON object a line, {"kind": "step", "step": …, "samples": …, "tokens": …, "lm loss": …}; events have "text".
/// Numbers that JSON cannot hold (NaN, infinities) are written as strings. A resumed run cuts what lies after its checkpoint, so
/// that each step is there once.
class JsonlMonitor final : public Monitor {
 public:
  /// @throws IoError when the file holds something else: a later resume() would cut it away.
  explicit JsonlMonitor(const std::filesystem::path& path);

  void metrics(const Progress& progress, std::span<const Metric> metrics) override;
  void event(const Progress& progress, std::string_view kind, std::string_view text) override;
  /// A record of kind "evaluation".
  void evaluation(const Progress& progress, std::span<const Metric> metrics) { write("evaluation", progress, metrics); }
  void flush() override { file_.sync(); }
  void resume(const Progress& progress) override;

 private:
  void write(std::string_view kind, const Progress& progress, std::span<const Metric> metrics);
  RecordFile file_;
  std::array<char, 8192> line_{};  ///< all metrics of a step, those of every group and verb included
};

}  // namespace espalier::app
