#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "checkpoint/reader.hpp"
#include "checkpoint/store.hpp"
#include "model/initialise.hpp"
#include "telemetry/jsonl_monitor.hpp"
#include "telemetry/log.hpp"
#include "telemetry/log_monitor.hpp"
#include "telemetry/metric_names.hpp"
#include "train/phase.hpp"
#include "train/resume.hpp"
#include "train/speed.hpp"

namespace espalier::app {
namespace {

/// The micro-batches of a batch the loader has read.
class LoadedBatches final : public BatchSource {
 public:
  LoadedBatches(const HostBatch& batch, std::int64_t seq, const Grid& grid) : batch_(batch), seq_(seq), grid_(grid) {}
  MicroBatch micro_batch(int index) override {
    const auto at = static_cast<std::size_t>(index * batch_.shape.micro_batch * seq_);
    return {batch_.ids.data() + at, batch_.targets.data() + at, first_sample_of(batch_.first_sample, batch_.shape, grid_, index)};
  }

 private:
  const HostBatch& batch_;
  std::int64_t seq_;
  const Grid& grid_;
};

std::string megabytes(std::size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// An overflow under a moving loss scale is part of the method; anything else not finite is a NaN step.
bool is_overflow(const Optimizer& optimizer, const Verdict& verdict) {
  return optimizer.precision().scaled_loss && std::isfinite(verdict.loss_sum);
}

/// "h.*.mlp.dense_h_to_4h.bias (24)": names with their layer left out, in logical order, and how many there are.
std::string names_of_group(const ParameterList& parameters, bool decays) {
  std::vector<std::pair<std::string, int>> names;
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.decays != decays) continue;
    std::string name(parameter.name);
    if (const auto end = name.find('.', 2); name.starts_with("h.") && end != std::string::npos) name.replace(2, end - 2, "*");
    const auto known = std::ranges::find(names, name, &std::pair<std::string, int>::first);
    if (known == names.end()) {
      names.emplace_back(name, 1);
    } else {
      known->second += 1;
    }
  }
  std::string text;
  for (const auto& [name, count] : names) {
    text += (text.empty() ? "" : ", ") + name + (name.find('*') == std::string::npos ? "" : fmt::format(" ({})", count));
  }
  return text;
}

LoadOptimizer parse_policy(const std::string& text) {
  if (text == "convert") return LoadOptimizer::convert;
  return text == "skip" ? LoadOptimizer::skip : LoadOptimizer::strict;
}

}  // namespace

Trainer::Trainer(Session& session)
    : session_(session),
      recipe_(session.recipe()),
      batches_(recipe_.train.batch, session.facts().grid.data),
      rates_(recipe_.train.rate),
      stop_rules_(recipe_.train.exit_duration_in_mins, recipe_.train.exit_interval) {
  const EvalSection& eval = recipe_.eval;
  if (eval.interval > 0 || eval.at_start || eval.at_end) {
    evaluation_ = std::make_unique<Evaluation>(session_, session_.dataset(), eval.samples);
    if (evaluation_->sets().empty()) {
      log(LogLevel::warning, "eval", "the data has no validation samples: nothing is evaluated");
      evaluation_.reset();
    }
  }
  phase(session_.world(), [&] { bind(); });
  start_or_resume();
}

Trainer::~Trainer() = default;

void Trainer::bind() {
  for (const BatchPhase& phase : batches_.phases(recipe_.train.train_samples)) {
    const Walk walk{Mode::train, phase.batch.micro_batch, session_.facts().model.seq_length, static_cast<int>(phase.batch.micro_batches)};
    if (std::ranges::find(walks_, walk) == walks_.end()) walks_.push_back(walk);
  }
  std::vector<Walk> all = walks_;
  if (evaluation_) all.push_back(evaluation_->walk());
  session_.executor().bind(all, session_.optimizer());
}

void Trainer::start_or_resume() {
  const CheckpointStore store(recipe_.checkpoint.save);
  std::optional<CheckpointStore::Found> found;
  phase(session_.world(), [&] {
    if (recipe_.checkpoint.load == "auto") {
      found = store.newest();
    } else if (recipe_.checkpoint.load != "none") {
      found = find_checkpoint(recipe_.checkpoint.load);
    }
  });
  if (found) {
    load(found->path, found->note);
  } else {
    initialise_weights();
  }
  phase(session_.world(), [&] { open_monitors(found.has_value()); });
  CheckpointWriter::Settings settings{recipe_.checkpoint.save, recipe_.checkpoint.keep, recipe_.checkpoint.async};
  writer_ = std::make_unique<CheckpointWriter>(settings, session_.world(), session_.backend().device(), session_.executor().parameters(),
                                               session_.data_parallel().state(), session_.optimizer().state());
  // A folder that cannot hold a checkpoint must not come to light after hours of training.
  if (!finished()) {
    phase(session_.world(), [&] {
      if (session_.world().rank() == 0) store.require_room(writer_->world_bytes());
    });
  }
  report_start();
}

void Trainer::initialise_weights() {
  InitialWeights how;
  how.std = recipe_.model.init_method_std;
  how.embedding = recipe_.model.embedding_init;
  how.seed = recipe_.train.seed;
  initialise(session_.facts().model, how, session_.executor().parameters(), session_.data_parallel(), session_.backend());
}

void Trainer::load(const std::filesystem::path& folder, const std::string& note) {
  const bool own_run = recipe_.checkpoint.load == "auto";
  std::vector<std::string> notes;
  phase(session_.world(), [&] {
    const CheckpointReader reader(folder);
    const Manifest& manifest = reader.manifest();
    const Manifest now = this->manifest();
    const LoadOptimizer policy = parse_policy(recipe_.checkpoint.load_optimizer);
    reader.require_model(now.model);
    if (own_run) check_same_run(manifest, now);
    if (policy == LoadOptimizer::strict) check_same_optimizer(manifest, now);
    if (policy != LoadOptimizer::skip) check_same_batches(manifest.train, batches_);
    notes = reader.load(session_.parameters().all(), session_.executor().parameters(), session_.data_parallel().state(), policy,
                        session_.backend().device(), session_.stream(), session_.optimizer().state());
    state_ = manifest.train;
    if (policy != LoadOptimizer::skip) {
      for (const OptimizerScalar& scalar : session_.optimizer().scalars()) {
        const auto saved = std::ranges::find(manifest.scalars, scalar.name, &std::pair<std::string, double>::first);
        if (saved != manifest.scalars.end()) {
          *scalar.value = saved->second;
        } else if (policy == LoadOptimizer::strict) {
          throw IoError(folder.string() + ": has no " + std::string(scalar.name) + " for this optimizer; checkpoint.load_optimizer = \"convert\" starts it anew");
        }
      }
    } else {
      state_ = {};  // weights only: a new run that starts from them
    }
    if (policy != LoadOptimizer::skip) {
      for (std::string& line : differences(manifest, now)) notes.push_back(std::move(line));
    }
  });
  session_.data_parallel().refresh(session_.stream());
  session_.backend().device().wait(session_.stream());
  saved_step_ = state_.step;
  log(LogLevel::info, "checkpoint", fmt::format("loaded {}", folder.string()));
  if (session_.world().rank() == 0) {
    if (!note.empty()) log(LogLevel::warning, "checkpoint", note);
    for (const std::string& line : notes) log(LogLevel::warning, "checkpoint", line);
  }
}

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
  event("model", fmt::format("{} parameters; {} steps of {} samples in all, {} tokens each sample", session_.parameters().count(),
                             recipe_.train.train_steps, recipe_.train.batch.global_batch, session_.facts().model.seq_length));
  report_decay();
  event("grid", fmt::format("tensor {} x pipeline {} x data {}, {} thread{} a rank", grid.tensor, grid.pipeline, grid.data,
                            session_.threads(), session_.threads() == 1 ? "" : "s"));
  const StateBytes bytes = session_.executor().state_bytes(walks_, session_.optimizer());
  event("memory", fmt::format("a rank: weights {}, gradients {}, optimizer {}, scratch {}, activations {}; checkpoint {}",
                              megabytes(bytes.weights), megabytes(bytes.gradients), megabytes(bytes.optimizer), megabytes(bytes.scratch),
                              megabytes(session_.executor().arena_bytes(walks_)), megabytes(writer_->world_bytes())));
  event("schedule", summary(recipe_.train.rate, recipe_.train.train_samples));
  for (const std::string& warning : recipe_.warnings) {
    if (session_.world().rank() == 0) log(LogLevel::warning, "schedule", warning);
  }
}

void Trainer::report_decay() {
  for (const bool decays : {true, false}) {
    const auto count = std::ranges::count(session_.parameters().all(), decays, &Parameter::decays);
    event("decay", fmt::format("{} parameters with{} weight decay: {}", count, decays ? "" : "out", names_of_group(session_.parameters(), decays)));
  }
}

ExitCode Trainer::run() {
  if (finished()) {
    event("end", fmt::format("nothing to train: step {} of {} is done", state_.step, recipe_.train.train_steps));
    if (recipe_.eval.at_end) evaluate("end");
    return ExitCode::ok;
  }
  if (recipe_.eval.at_start && state_.step == 0) evaluate("start");
  loader_ = std::make_unique<Loader>(session_.dataset(), 0, batches_, session_.facts(), recipe_.train.train_samples, state_.samples);
  StopReason stop = StopReason::none;
  try {
    while (!finished() && stop == StopReason::none) {
      one_step();
      const Border border = agree_on_border();
      stop = border.stop;
      poll_save(border.writing);
      if (evaluation_ && recipe_.eval.interval > 0 && state_.step % recipe_.eval.interval == 0 && !finished()) evaluate("step");
      if (recipe_.checkpoint.save_interval > 0 && state_.step % recipe_.checkpoint.save_interval == 0) save();
    }
  } catch (const AgreedError&) {
    rescue_save();
    throw;
  }
  if (saved_step_ != state_.step) save();
  finish_save();
  if (!finished()) {
    // What loads something else at each start would begin again.
    const bool goes_on = recipe_.checkpoint.load == "auto" && recipe_.checkpoint.load_optimizer != "skip";
    event("stop", fmt::format("{} after step {}; run the same command again{} to go on", to_string(stop), state_.step,
                              goes_on ? "" : " with --set checkpoint.load=auto --set checkpoint.load_optimizer=strict"));
    return ExitCode::interrupted;
  }
  if (recipe_.eval.at_end) evaluate("end");
  event("end", fmt::format("all {} steps are done: {} applied, {} skipped, {} samples consumed", state_.step, state_.applied_steps,
                           state_.skipped_steps, state_.samples));
  for (const auto& monitor : monitors_) monitor->flush();
  return ExitCode::ok;
}

void Trainer::one_step() {
  step_start_ = std::chrono::steady_clock::now();
  const HostBatch& batch = loader_->next();
  ESPALIER_ASSERT(batch.first_sample == state_.samples);
  const RunFacts& facts = session_.facts();
  LoadedBatches source(batch, facts.model.seq_length, facts.grid);
  const Walk walk{Mode::train, batch.shape.micro_batch, facts.model.seq_length, static_cast<int>(batch.shape.micro_batches)};
  StepSettings settings;
  settings.lr = rates_.rate(state_.samples);
  settings.clip = recipe_.train.clip_grad;
  settings.applied_steps = state_.applied_steps + 1;
  Verdict verdict;
  try {
    verdict = session_.executor().train_step(walk, source, settings, session_.optimizer());
  } catch (const NumericsError& error) {
    throw AgreedError(error.exit_code(), error.what());  // the optimizer's, about the verdict that all ranks share
  }
  state_.step += 1;
  state_.samples += batch.shape.global_batch;
  count_verdict(verdict);
  record_step(verdict, batch.shape.global_batch, settings.lr, seconds_since(step_start_));
  alike([&] { apply_policy(verdict); });
}

void Trainer::count_verdict(const Verdict& verdict) {
  if (verdict.finite) {
    state_.applied_steps += 1;
    state_.consecutive_skipped = 0;
    return;
  }
  state_.skipped_steps += 1;
  state_.consecutive_skipped += 1;
  if (!is_overflow(session_.optimizer(), verdict)) state_.nan_steps += 1;
}

void Trainer::apply_policy(const Verdict& verdict) const {
  if (verdict.finite) return;
  if (recipe_.train.nan_policy == NanPolicy::stop && !is_overflow(session_.optimizer(), verdict)) {
    throw NumericsError(fmt::format("step {}: the gradient of {} is not finite (train.nan_policy = \"stop\"); weights are as before it",
                                    state_.step, verdict.first_bad));
  }
  if (recipe_.train.max_skipped > 0 && state_.consecutive_skipped > recipe_.train.max_skipped) {
    throw NumericsError(fmt::format("step {}: {} steps in a row were skipped (train.max_skipped = {}); first bad parameter now: {}", state_.step,
                                    state_.consecutive_skipped, recipe_.train.max_skipped, verdict.first_bad));
  }
}

void Trainer::record_step(const Verdict& verdict, std::int64_t samples, double lr, double seconds) {
  steps_here_ += 1;
  if (monitors_.empty()) return;
  const RunFacts& facts = session_.facts();
  const double tokens = static_cast<double>(samples * facts.model.seq_length);
  const bool recomputes = recipe_.train.recompute == Recompute::full;
  const double flops = step_flops(facts.model, samples, recomputes);
  const std::array metrics = {
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
  };
  for (const auto& monitor : monitors_) monitor->metrics(progress(), metrics);
  if (steps_here_ == 1) event("speed", fmt::format("the first step took {:.2f} s, caches and kernels made ready included", seconds));
  if (!verdict.finite) event("skipped", fmt::format("step {}: gradients are not finite, first in {}; nothing was changed", state_.step, verdict.first_bad));
}

Trainer::Border Trainer::agree_on_border() {
  std::array<double, 2> values = {static_cast<double>(stop_rules_.after_step(state_.step)),
                                  writer_->in_flight() && !writer_->written() ? 1.0 : 0.0};
  const View view = View::vector(values.data(), static_cast<std::int64_t>(values.size()), DType::f64);
  session_.world().run({Verb::all_reduce, view, view, Reduce::max, 0, 0}, session_.stream());
  return {static_cast<StopReason>(values[0]), values[1] > 0};
}

void Trainer::evaluate(std::string_view when) {
  if (!evaluation_) return;
  if (!session_.data_parallel().replicas_equal()) session_.data_parallel().sync(session_.stream());
  std::vector<SetLoss> losses;
  for (const int position : evaluation_->sets()) {
    const SetLoss& set = losses.emplace_back(evaluation_->run(position));
    event("evaluation", fmt::format("{} loss at iteration {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} | bits per byte: {:.4f} |", set.name,
                                    state_.step, set.mean(), std::exp(set.mean()), set.bits_per_byte()));
  }
  if (session_.world().rank() != 0) return;
  const SetLoss total = total_of(losses);
  const std::array metrics = {Metric{"lm loss validation", total.mean()}, Metric{"bits per byte validation", total.bits_per_byte()}};
  for (const auto& monitor : monitors_) {
    if (auto* records = dynamic_cast<JsonlMonitor*>(monitor.get())) records->evaluation(progress(), metrics);
  }
  event("validation", fmt::format("{:.2f} bits per byte ({}, step {})", total.bits_per_byte(), when, state_.step));
}

void Trainer::save() {
  finish_save();
  if (!session_.data_parallel().replicas_equal()) session_.data_parallel().sync(session_.stream());
  for (const auto& monitor : monitors_) monitor->flush();
  event("checkpoint", fmt::format("saving checkpoint at iteration {:7d} to {}", state_.step, recipe_.checkpoint.save));
  writer_->start(manifest(), session_.stream());
  saved_step_ = state_.step;
}

void Trainer::poll_save(bool writing) {
  if (writer_->in_flight() && !writing) finish_save();
}

void Trainer::finish_save() {
  if (!writer_->in_flight()) return;
  const auto folder = writer_->publish();
  event("checkpoint", fmt::format("successfully saved checkpoint {}", folder.string()));
}

void Trainer::rescue_save() {
  try {
    finish_save();
  } catch (const AgreedError& error) {
    if (session_.world().rank() == 0) log(LogLevel::error, "checkpoint", error.what());
  }
}

Manifest Trainer::manifest() const {
  Manifest manifest;
  manifest.train = state_;
  manifest.seed = recipe_.train.seed;
  manifest.recipe = recipe_.effective;
  manifest.optimizer = recipe_.optimizer.plugin;
  for (const OptimizerScalar& scalar : session_.optimizer().scalars()) manifest.scalars.emplace_back(scalar.name, *scalar.value);
  manifest.data_fingerprint = fmt::format("{:016x}", session_.dataset().fingerprint());
  manifest.tokenizer = session_.tokenizer().fingerprint();
  manifest.provider = session_.provider();
  manifest.model = session_.facts().model;
  manifest.grid = session_.facts().grid;
  return manifest;
}

Progress Trainer::progress() const { return {state_.step, state_.samples, state_.samples * session_.facts().model.seq_length}; }

void Trainer::event(std::string_view kind, std::string_view text) {
  for (const auto& monitor : monitors_) monitor->event(progress(), kind, text);
}

}  // namespace espalier::app
