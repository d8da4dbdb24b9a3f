// What a run tells its monitors.
#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "telemetry/jsonl_monitor.hpp"
#include "telemetry/log.hpp"
#include "telemetry/log_monitor.hpp"
#include "telemetry/metric_names.hpp"
#include "train/memory_report.hpp"
#include "train/phase.hpp"
#include "train/speed.hpp"

namespace espalier::app {
namespace {

std::string megabytes(std::size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

/// "h.*.mlp.dense_h_to_4h.bias (24)": names with their layer left out, in logical order, and how many there are.
std::string names_of_group(const ParameterList& parameters, bool decays) {
  std::vector<std::pair<std::string, int>> names;
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.decays != decays) continue;
    std::string name(parameter.name);
    if (const auto end = name.find('.', 2); name.starts_with("h.") && end != std::string::npos)
      name.replace(2, end - 2, "*");
    const auto known = std::ranges::find(names, name, &std::pair<std::string, int>::first);
    if (known == names.end()) {
      names.emplace_back(name, 1);
    } else {
      known->second += 1;
    }
  }
  std::string text;
  for (const auto& [name, count] : names) {
    text +=
        (text.empty() ? "" : ", ") + name + (name.find('*') == std::string::npos ? "" : fmt::format(" ({})", count));
  }
  return text;
}

}  // namespace

void Trainer::open_monitors(bool resumed) {
  if (session_.world().rank() != 0) return;
  for (const std::string& file : {recipe_.log.file, recipe_.log.metrics}) {
    const auto folder = std::filesystem::path(file).parent_path();
    std::error_code error;
    if (!folder.empty()) std::filesystem::create_directories(folder, error);
    if (error) throw IoError(folder.string(), "cannot make the folder", error.value());
  }
  LogMonitor::Settings settings;
  settings.interval = recipe_.log.interval;
  settings.total_steps = recipe_.train.train_steps;
  settings.total_samples = batches_.samples_after(recipe_.train.train_steps);
  settings.show_scale = session_.optimizer().precision().working == DType::f16;
  monitors_.push_back(std::make_unique<LogMonitor>(recipe_.log.file, settings));
  monitors_.push_back(std::make_unique<JsonlMonitor>(recipe_.log.metrics));
  // A run that starts anew in a folder with old records drops them, too: what they describe no longer exists.
  for (const auto& monitor : monitors_) {
    if (resumed || state_.step == 0) monitor->resume(progress());
  }
}

void Trainer::report_start() {
  const Grid& grid = session_.facts().grid;
  event("model", fmt::format("{} parameters; {} steps of {} samples in all, {} tokens each sample",
                             session_.parameters().count(), recipe_.train.train_steps, recipe_.train.batch.global_batch,
                             session_.facts().model.seq_length));
  report_decay();
  event("grid", fmt::format("tensor {} x pipeline {} x data {}, {} thread{} a rank", grid.tensor, grid.pipeline,
                            grid.data, session_.threads(), session_.threads() == 1 ? "" : "s"));
  const StateBytes bytes = session_.executor().state_bytes(walks_, session_.optimizer());
  event("memory",
        fmt::format("a rank: weights {}, gradients {}, optimizer {}, scratch {}, activations {}; checkpoint {}",
                    megabytes(bytes.weights), megabytes(bytes.gradients), megabytes(bytes.optimizer),
                    megabytes(bytes.scratch), megabytes(session_.executor().arena_bytes(walks_)),
                    megabytes(writer_->world_bytes())));
  std::string parts;
  for (const MemoryUse& part : bytes.parts) {
    if (part.bytes > 0) parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part.purpose, megabytes(part.bytes));
  }
  if (!parts.empty()) event("memory", "of it: " + parts);
  event("schedule", summary(recipe_.train.rate, recipe_.train.train_samples));
  for (const std::string& warning : recipe_.warnings) {
    if (session_.world().rank() == 0) log(LogLevel::warning, "schedule", warning);
  }
}

void Trainer::report_decay() {
  for (const bool decays : {true, false}) {
    const auto count = std::ranges::count(session_.parameters().all(), decays, &Parameter::decays);
    event("decay", fmt::format("{} parameters with{} weight decay: {}", count, decays ? "" : "out",
                               names_of_group(session_.parameters(), decays)));
  }
}

void Trainer::record_step(const Verdict& verdict, std::int64_t samples, double lr, double seconds) {
  steps_here_ += 1;
  seconds_here_ += seconds;
  if (monitors_.empty()) return;
  const RunFacts& facts = session_.facts();
  const double tokens = static_cast<double>(samples * facts.model.seq_length);
  const bool recomputes = recipe_.train.recompute == Recompute::full;
  const double flops = step_flops(facts.model, samples, recomputes);
  metrics_.assign({
      Metric{metric::kLoss, verdict.tokens > 0 ? verdict.loss_sum / static_cast<double>(verdict.tokens) : 0},
      Metric{metric::kLearningRate, lr},
      Metric{metric::kGlobalBatch, static_cast<double>(samples)},
      Metric{metric::kGradNorm, verdict.norm},
      Metric{metric::kLossScale, session_.optimizer().loss_scale()},
      Metric{metric::kApplied, static_cast<double>(state_.applied_steps)},
      Metric{metric::kSkipped, static_cast<double>(state_.skipped_steps)},
      Metric{metric::kNan, static_cast<double>(state_.nan_steps)},
      Metric{metric::kStepTime, seconds},
      Metric{metric::kSamplesPerSecond, static_cast<double>(samples) / seconds},
      Metric{metric::kTokensPerSecond, tokens / seconds},
      Metric{metric::kTflops, flops / seconds / 1e12 / facts.grid.world()},
  });
  const auto communication = comm_report_->since_last();
  metrics_.insert(metrics_.end(), communication.begin(), communication.end());
  tell([&](Monitor& monitor) { monitor.metrics(progress(), metrics_); });
  if (steps_here_ == 1)
    event("speed", fmt::format("the first step took {:.2f} s, caches and kernels made ready included", seconds));
  if (!verdict.finite)
    event("skipped", fmt::format("step {}: gradients are not finite, first in {}; nothing was changed", state_.step,
                                 verdict.first_bad));
}

void Trainer::report_memory() {
  const StateBytes state = session_.executor().state_bytes(walks_, session_.optimizer());
  const RankMemory own = measure_memory(session_.backend().device(), state, session_.executor().arena_bytes(walks_));
  for (const std::string& line : memory_lines(session_.world(), own, session_.stream())) event("memory", line);
}

void Trainer::report_communication() {
  for (const std::string& line : comm_report_->lines(session_.world(), session_.stream())) event("comm", line);
}

/// The rank that waited longest is what the others waited for.
void Trainer::report_loader() {
  std::array<double, 2> spent = {loader_->waited_seconds(), loader_->busy_seconds()};
  const View view = View::vector(spent.data(), std::ssize(spent), DType::f64);
  session_.world().run({Verb::all_reduce, view, view, Reduce::max, 0, 0}, session_.stream());
  const auto share = [&](double seconds) { return 100 * seconds / seconds_here_; };
  event("data", fmt::format("waited {:.3f} s for batches, {:.3f} % of the steps; reading them kept a thread of its own busy for {:.3f} s, "
                            "{:.3f} %",
                            spent[0], share(spent[0]), spent[1], share(spent[1])));
}

Progress Trainer::progress() const {
  return {state_.step, state_.samples, state_.samples * session_.facts().model.seq_length};
}

void Trainer::event(std::string_view kind, std::string_view text) {
  tell([&](Monitor& monitor) { monitor.event(progress(), kind, text); });
}

void Trainer::tell(FunctionRef<void(Monitor&)> what) {
  std::erase_if(monitors_, [&](const std::unique_ptr<Monitor>& monitor) {
    try {
      what(*monitor);
      return false;
    } catch (const IoError& error) {
      if (!stepping_) throw;
      if (record_failure_.empty()) record_failure_ = error.what();
      return true;
    }
  });
}

void Trainer::require_records() {
  phase(session_.world(), [&] {
    if (record_failure_.empty()) return;
    const bool saved = saved_step_ == state_.step;
    throw IoError(fmt::format("{}; the run stopped after step {}, whose state {}; make room and run the same command again", record_failure_,
                              state_.step, saved ? "is saved" : "is not saved (checkpoint.save_interval = -1)"));
  });
}

}  // namespace espalier::app
