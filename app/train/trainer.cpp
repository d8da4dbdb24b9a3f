#include "train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "telemetry/jsonl_monitor.hpp"
#include "telemetry/log.hpp"
#include "train/phase.hpp"

namespace espalier::app {
namespace {

/// The micro-batches of a batch the loader has read.
class LoadedBatches final : public BatchSource {
 public:
  LoadedBatches(const HostBatch& batch, std::int64_t seq, const Grid& grid) : batch_(batch), seq_(seq), grid_(grid) {}
  MicroBatch micro_batch(int index) override {
    const auto at = static_cast<std::size_t>(index * batch_.shape.micro_batch * seq_);
    return {batch_.ids.data() + at, batch_.targets.data() + at,
            first_sample_of(batch_.first_sample, batch_.shape, grid_, index)};
  }

 private:
  const HostBatch& batch_;
  std::int64_t seq_;
  const Grid& grid_;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// An overflow under a moving loss scale is part of the method; anything else not finite is a NaN step.
bool is_overflow(const Optimizer& optimizer, const Verdict& verdict) {
  return optimizer.precision().scaled_loss && std::isfinite(verdict.loss_sum);
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
    const Walk walk{Mode::train, phase.batch.micro_batch, session_.facts().model.seq_length,
                    static_cast<int>(phase.batch.micro_batches)};
    if (std::ranges::find(walks_, walk) == walks_.end()) walks_.push_back(walk);
  }
  if (evaluation_) walks_.push_back(evaluation_->walk());
  session_.executor().bind(walks_, session_.optimizer());
}

ExitCode Trainer::run() {
  if (finished()) {
    event("end", fmt::format("nothing to train: step {} of {} is done", state_.step, recipe_.train.train_steps));
    if (recipe_.eval.at_end) evaluate("end");
    return ExitCode::ok;
  }
  if (recipe_.eval.at_start && state_.step == 0) evaluate("start");
  loader_ = std::make_unique<Loader>(session_.dataset(), 0, batches_, session_.facts(), recipe_.train.train_samples,
                                     state_.samples);
  session_.comm_counters().reset();
  comm_report_.emplace(session_.comm_counters());
  StopReason stop = StopReason::none;
  stepping_ = true;
  try {
    while (!finished() && stop == StopReason::none) {
      one_step();
      if (steps_here_ == 1) report_memory();
      if (guard_ && state_.step % recipe_.guard.interval == 0) check_replicas();
      const Border border = agree_on_border();
      stop = border.stop;
      poll_save(border.writing);
      if (evaluation_ && recipe_.eval.interval > 0 && state_.step % recipe_.eval.interval == 0 && !finished())
        evaluate("step");
      if (recipe_.checkpoint.save_interval > 0 && state_.step % recipe_.checkpoint.save_interval == 0) save();
    }
  } catch (const AgreedError&) {
    rescue_save();
    throw;
  }
  if (saved_step_ != state_.step && recipe_.checkpoint.save_interval >= 0) save();
  finish_save();
  report_communication();
  report_loader();
  report_guard();
  if (!finished()) require_records();
  if (!finished()) {
    if (recipe_.checkpoint.save_interval < 0) {
      event("stop", fmt::format("{} after step {}; checkpoint.save_interval = -1: nothing is saved", to_string(stop),
                                state_.step));
      return ExitCode::interrupted;
    }
    // What loads something else at each start would begin again.
    const bool goes_on = recipe_.checkpoint.load == "auto" && recipe_.checkpoint.load_optimizer != "skip";
    event("stop",
          fmt::format("{} after step {}; run the same command again{} to go on", to_string(stop), state_.step,
                      goes_on ? "" : " with --set checkpoint.load=auto --set checkpoint.load_optimizer=strict"));
    return ExitCode::interrupted;
  }
  if (recipe_.eval.at_end) evaluate("end");
  event("end", fmt::format("all {} steps are done: {} applied, {} skipped, {} samples consumed", state_.step,
                           state_.applied_steps, state_.skipped_steps, state_.samples));
  tell([](Monitor& monitor) { monitor.flush(); });
  require_records();
  return ExitCode::ok;
}

void Trainer::one_step() {
  step_start_ = std::chrono::steady_clock::now();
  session_.begin_step(state_.step + 1);
  const HostBatch& batch = loader_->next();
  ESPALIER_ASSERT(batch.first_sample == state_.samples);
  const RunFacts& facts = session_.facts();
  LoadedBatches source(batch, facts.model.seq_length, facts.grid);
  const Walk walk{Mode::train, batch.shape.micro_batch, facts.model.seq_length,
                  static_cast<int>(batch.shape.micro_batches)};
  StepSettings settings;
  settings.lr = rates_.rate(state_.samples);
  settings.clip = recipe_.train.clip_grad;
  settings.applied_steps = state_.applied_steps + 1;
  const Verdict verdict = in_step(session_.world(), [&] {
    try {
      return session_.executor().train_step(walk, source, settings, session_.optimizer());
    } catch (const NumericsError& error) {
      throw AgreedError(error.exit_code(), error.what());  // the optimizer's, about the verdict that all ranks share
    }
  });
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
    throw NumericsError(
        fmt::format("step {}: the gradient of {} is not finite (train.nan_policy = \"stop\"); weights are as before it",
                    state_.step, verdict.first_bad));
  }
  if (recipe_.train.max_skipped > 0 && state_.consecutive_skipped > recipe_.train.max_skipped) {
    throw NumericsError(
        fmt::format("step {}: {} steps in a row were skipped (train.max_skipped = {}); first bad parameter now: {}",
                    state_.step, state_.consecutive_skipped, recipe_.train.max_skipped, verdict.first_bad));
  }
}

Trainer::Border Trainer::agree_on_border() {
  const StopReason own = record_failure_.empty() ? stop_rules_.after_step(state_.step) : StopReason::records;
  std::array<double, 2> values = {static_cast<double>(own),
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
    const SetLoss& set = losses.emplace_back(in_step(session_.world(), [&] { return evaluation_->run(position); }));
    event("evaluation",
          fmt::format("{} loss at iteration {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} | bits per byte: {:.4f} |",
                      set.name, state_.step, set.mean(), std::exp(set.mean()), set.bits_per_byte()));
  }
  if (session_.world().rank() != 0) return;
  const SetLoss total = total_of(losses);
  const std::array metrics = {Metric{"lm loss validation", total.mean()},
                              Metric{"bits per byte validation", total.bits_per_byte()}};
  tell([&](Monitor& monitor) {
    if (auto* records = dynamic_cast<JsonlMonitor*>(&monitor)) records->evaluation(progress(), metrics);
  });
  event("validation", fmt::format("{:.2f} bits per byte ({}, step {})", total.bits_per_byte(), when, state_.step));
}

}  // namespace espalier::app
