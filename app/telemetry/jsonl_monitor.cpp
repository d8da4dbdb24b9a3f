#include "telemetry/jsonl_monitor.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "espalier/error.hpp"

namespace espalier::app {

JsonlMonitor::JsonlMonitor(const std::filesystem::path& path) : file_(path) {
  if (!file_.begins_with(R"({"kind":)"))
    throw IoError(path.string() + ": holds something else than the records of a run; name another file in log.metrics, or move this one away");
}

void JsonlMonitor::metrics(const Progress& progress, std::span<const Metric> metrics) { write("step", progress, metrics); }

void JsonlMonitor::write(std::string_view kind, const Progress& progress, std::span<const Metric> metrics) {
  // format_to_n into a member array: no heap call in a step. Names are ours and need no escaping.
  char* out = line_.data();
  char* const end = line_.data() + line_.size() - 2;
  const auto append = [&](auto format, auto&&... args) {
    out = fmt::format_to_n(out, static_cast<std::size_t>(end - out), fmt::runtime(format), args...).out;
  };
  append(R"({{"kind":"{}","step":{},"samples":{},"tokens":{})", kind, progress.step, progress.samples, progress.tokens);
  for (const Metric& metric : metrics) {
    if (std::isfinite(metric.value)) {
      append(R"(,"{}":{})", metric.name, metric.value);
    } else {
      append(R"(,"{}":"{}")", metric.name, metric.value);
    }
  }
  *out++ = '}';
  *out++ = '\n';
  file_.write({line_.data(), static_cast<std::size_t>(out - line_.data())});
}

void JsonlMonitor::event(const Progress& progress, std::string_view kind, std::string_view text) {
  nlohmann::ordered_json record{{"kind", kind}, {"step", progress.step}, {"samples", progress.samples}, {"tokens", progress.tokens}};
  record["text"] = text;
  file_.write(record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void JsonlMonitor::resume(const Progress& progress) {
  // The last record at or before the checkpoint is the border: the records after it will be written again.
  bool before = true;
  file_.cut_after_last([&](std::string_view line) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (record.is_discarded() || !record.contains("step") || !record["step"].is_number_integer()) return false;
    before = before && record["step"].get<std::int64_t>() <= progress.step;
    return before;
  });
}

}  // namespace espalier::app
