// What the replica guard is asked to compare, and when.
#include <fmt/format.h>

#include <array>

#include "train/trainer.hpp"

namespace espalier::app {

void Trainer::make_guard() {
  if (recipe_.guard.interval == 0 || session_.world().size() == 1) return;
  GuardParts parts;
  parts.grid = session_.facts().grid;
  parts.backend = &session_.backend();
  parts.data = &session_.data_parallel();
  parts.optimizer = &session_.optimizer();
  parts.world = &session_.world();
  parts.device_world = &session_.device_world();
  parts.parameters = session_.executor().parameters();
  guard_ = std::make_unique<ReplicaGuard>(parts);
  for (const OptimizerScalar& scalar : session_.optimizer().scalars()) {
    run_numbers_.push_back({fmt::format("the optimizer's {}", scalar.name), 0, scalar.value});
  }
  for (const char* name : {"train.seed", "consumed samples", "applied steps", "skipped steps", "learning rate"}) {
    run_numbers_.push_back({name});
  }
  check_replicas();
  event("guard",
        fmt::format("{} things are the same on several ranks: compared every {} steps ({:.1f} MiB a rank)",
                    guard_->replicated(), recipe_.guard.interval, static_cast<double>(guard_->bytes()) / (1 << 20)));
}

void Trainer::check_replicas() {
  if (!guard_) return;
  const std::array<double, 5> values = {static_cast<double>(recipe_.train.seed), static_cast<double>(state_.samples),
                                        static_cast<double>(state_.applied_steps),
                                        static_cast<double>(state_.skipped_steps), rates_.rate(state_.samples)};
  const std::size_t first = run_numbers_.size() - values.size();  // after the optimizer's, which have homes
  for (std::size_t i = 0; i < values.size(); ++i) run_numbers_[first + i].value = values[i];
  const std::string repaired = guard_->check(state_.step, run_numbers_, recipe_.guard.action);
  if (!repaired.empty()) event("guard", repaired);
}

void Trainer::report_guard() {
  if (!guard_) return;
  event("guard", fmt::format("{} comparisons took {:.3f} s{}", guard_->checks(), guard_->seconds(),
                             guard_->repairs() == 0 ? ", all copies were equal"
                                                    : fmt::format(", {} repaired", guard_->repairs())));
}

}  // namespace espalier::app
