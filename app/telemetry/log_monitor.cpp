#include "telemetry/log_monitor.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "telemetry/metric_names.hpp"

namespace espalier::app {
namespace {

void to_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;  // nobody listens: the file has it all the same
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

LogMonitor::LogMonitor(const std::filesystem::path& path, const Settings& settings)
    : file_(path), settings_(settings), terminal_(settings.console && ::isatty(STDERR_FILENO) == 1) {}

LogMonitor::~LogMonitor() { end_progress_line(); }

std::size_t LogMonitor::compose(const Progress& progress, std::span<const Metric> metrics) {
  using metric::find;
  char* out = line_.data();
  char* const end = line_.data() + line_.size() - 1;
  const auto append = [&](auto format, auto... args) {
    out = fmt::format_to_n(out, static_cast<std::size_t>(end - out), fmt::runtime(format), args...).out;
  };
  const double seconds = interval_time_ / static_cast<double>(timed_steps_);
  const double samples_per_second = interval_samples_ / interval_time_;
  const double speed = find(metrics, metric::kSamplesPerSecond, 0);
  const double tokens_per_sample = speed > 0 ? find(metrics, metric::kTokensPerSecond, 0) / speed : 0;
  const double flops_per_sample = speed > 0 ? find(metrics, metric::kTflops, 0) / speed : 0;
  append(" iteration {:8d}/{:8d} | consumed samples: {:12d} | consumed tokens: {:12d} | elapsed time per iteration (s): {:.4f} |",
         progress.step, settings_.total_steps, progress.samples, progress.tokens, seconds);
  append(" learning rate: {:.3E} | global batch size: {:5d} | lm loss: {:.6E} |", find(metrics, metric::kLearningRate, 0),
         static_cast<std::int64_t>(find(metrics, metric::kGlobalBatch, 0)), loss_sum_ / static_cast<double>(interval_steps_));
  if (settings_.show_scale) append(" loss scale: {:.1f} |", find(metrics, metric::kLossScale, 1));
  append(" grad norm: {:.3f} | number of skipped iterations: {:3d} | number of nan iterations: {:3d} |",
         find(metrics, metric::kGradNorm, 0), static_cast<std::int64_t>(find(metrics, metric::kSkipped, 0)),
         static_cast<std::int64_t>(find(metrics, metric::kNan, 0)));
  append(" samples per second: {:.3f} | tokens per second: {:.1f} | TFLOPs: {:.3f} |",
         samples_per_second, samples_per_second * tokens_per_sample, samples_per_second * flops_per_sample);
  *out++ = '\n';
  return static_cast<std::size_t>(out - line_.data());
}

void LogMonitor::metrics(const Progress& progress, std::span<const Metric> metrics) {
  if (first_) interval_time_ = interval_samples_ = 0, timed_steps_ = 0;
  first_ = !seen_;
  seen_ = true;
  interval_time_ += metric::find(metrics, metric::kStepTime, 0);
  interval_samples_ += metric::find(metrics, metric::kGlobalBatch, 0);
  ++timed_steps_;
  loss_sum_ += metric::find(metrics, metric::kLoss, 0);
  ++interval_steps_;
  if (terminal_) draw(progress, metrics);
  if (progress.step % settings_.interval != 0 && progress.step != settings_.total_steps) return;
  const std::size_t length = compose(progress, metrics);
  file_.write({line_.data(), length});
  if (settings_.console && !terminal_) to_stderr({line_.data(), length});
  interval_time_ = interval_samples_ = loss_sum_ = 0;
  interval_steps_ = timed_steps_ = 0;
  first_ = false;
}

void LogMonitor::draw(const Progress& progress, std::span<const Metric> metrics) {
  // At most ten times a second: a terminal may be slower than a step of a small model.
  const auto now = std::chrono::steady_clock::now();
  const bool last = progress.step == settings_.total_steps;
  if (drawn_ && !last && now - last_draw_ < std::chrono::milliseconds(100)) return;
  last_draw_ = now;
  drawn_ = true;
  const double rate = metric::find(metrics, metric::kSamplesPerSecond, 0);
  const double left = rate > 0 ? static_cast<double>(settings_.total_samples - progress.samples) / rate : 0;
  std::array<char, 256> text;
  const auto result = fmt::format_to_n(
      text.data(), text.size(), "\r\033[K step {}/{} ({:.0f} %)  loss {:.4f}  grad norm {:.2f}  lr {:.2e}  {:.0f} tokens/s  {:d}:{:02d} left",
      progress.step, settings_.total_steps,
      100.0 * static_cast<double>(progress.samples) / static_cast<double>(settings_.total_samples),
      metric::find(metrics, metric::kLoss, 0), metric::find(metrics, metric::kGradNorm, 0),
      metric::find(metrics, metric::kLearningRate, 0), metric::find(metrics, metric::kTokensPerSecond, 0),
      static_cast<std::int64_t>(left) / 60, static_cast<std::int64_t>(left) % 60);
  to_stderr({text.data(), std::min(result.size, text.size())});
}

void LogMonitor::end_progress_line() {
  if (drawn_) to_stderr("\n");
  drawn_ = false;
}

void LogMonitor::event(const Progress&, std::string_view kind, std::string_view text) {
  end_progress_line();
  const std::string line = fmt::format("{}: {}\n", kind, text);
  file_.write(line);
  if (settings_.console) to_stderr(line);
}

void LogMonitor::flush() { file_.sync(); }

void LogMonitor::resume(const Progress& progress) {
  if (progress.step == 0) return;
  event(progress, "resume", fmt::format("continuing after step {}, {} samples consumed", progress.step, progress.samples));
}

}  // namespace espalier::app
