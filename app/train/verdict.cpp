#include "train/verdict.hpp"

#include <cmath>
#include <cstring>

namespace espalier::app {

VerdictMaker::VerdictMaker(const ParameterList& parameters, Backend& backend, Communicator& world)
    : parameters_(parameters), backend_(backend), world_(world) {
  const std::size_t slots = static_cast<std::size_t>(parameters.size()) + 2;
  host_.resize(slots + 1);
  memory_ = backend.device().reserve(host_.size() * sizeof(double), "verdict");
  factor_ = reinterpret_cast<float*>(memory_.data() + slots * sizeof(double));
  skip_ = reinterpret_cast<std::int32_t*>(factor_ + 1);
}

void VerdictMaker::begin(Stream& stream) { backend_.device().fill_zero(slot_view(), stream); }

Verdict VerdictMaker::step(const VerdictInputs& inputs, DataParallel& data, Optimizer& optimizer, Stream& stream) {
  Device& device = backend_.device();
  data.squares(slots(), stream);
  world_.finish(world_.start_all_reduce(slot_view(), Reduce::sum_rank_order, stream), stream);

  VerdictRule rule;
  rule.slots = slots();
  rule.parameters = parameters_.size();
  rule.nominal_tokens = static_cast<double>(inputs.rows) * inputs.micro_batches * inputs.data;
  rule.base = 1.0 / (static_cast<double>(inputs.micro_batches) * inputs.data) / inputs.loss_scale;
  rule.clip = inputs.settings.clip;
  backend_.kernels().update->verdict(rule, factor_, skip_, stream);

  StepInputs step;
  step.lr = inputs.settings.lr;
  step.factor = factor_;
  step.skip = skip_;
  step.applied_steps = inputs.settings.applied_steps;
  data.step(optimizer, step, stream);

  const auto words = static_cast<std::int64_t>(host_.size());
  device.copy(View::vector(memory_.data(), words, DType::f64), View::vector(host_.data(), words, DType::f64), stream);
  device.wait(stream);

  Verdict verdict;
  const auto count = static_cast<std::size_t>(parameters_.size());
  double squares = 0;
  for (std::size_t p = 0; p < count; ++p) {
    squares += host_[p];
    if (!std::isfinite(host_[p]) && verdict.first_bad.empty())
      verdict.first_bad = parameters_[static_cast<int>(p)].name;
  }
  verdict.loss_sum = host_[count];
  verdict.tokens = static_cast<std::int64_t>(host_[count + 1]);
  const double correction = host_[count + 1] > 0 ? rule.nominal_tokens / host_[count + 1] : 0.0;
  verdict.norm = std::sqrt(squares) * rule.base * correction;
  std::int32_t skip = 0;
  std::memcpy(&skip, reinterpret_cast<const std::byte*>(&host_[count + 2]) + sizeof(float), sizeof skip);
  verdict.finite = skip == 0;
  return verdict;
}

std::pair<double, double> VerdictMaker::world_sums(Stream& stream) {
  const View both = View::vector(sums(), 2, DType::f64);
  world_.finish(world_.start_all_reduce(both, Reduce::sum_rank_order, stream), stream);
  double host[2] = {};
  backend_.device().copy(both, View::vector(host, 2, DType::f64), stream);
  backend_.device().wait(stream);
  return {host[0], host[1]};
}

}  // namespace espalier::app
