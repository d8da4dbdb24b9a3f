#include "support/spread.hpp"

#include <algorithm>
#include <limits>

#include "model/initialise.hpp"
#include "support/session_rig.hpp"
#include "train/evaluation.hpp"
#include "train/loader.hpp"

namespace espalier::testing_support {
namespace {

using namespace app;

constexpr std::int64_t kMicroBatches = 4;  // of a step, over all data ranks

/// Training samples of a step, read as the trainer's loader does.
class DatasetBatches final : public BatchSource {
 public:
  DatasetBatches(const Dataset& dataset, const RunFacts& facts, std::int64_t micro, std::int64_t step) {
    const std::int64_t global = micro * kMicroBatches;
    const std::int64_t seq = facts.model.seq_length, samples = global / facts.grid.data;
    targets_.resize(static_cast<std::size_t>(samples * seq));
    ids_.resize(targets_.size() + 1);
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(seq));
    const StepBatch shape{global, micro, samples / micro};
    for (std::int64_t row = 0; row < samples; ++row) {
      const std::int64_t sample = first_sample_of(step * global, shape, facts.grid, row / micro) + row % micro;
      const auto at = static_cast<std::size_t>(row * seq), n = static_cast<std::size_t>(seq);
      read_sample(dataset, 0, sample, facts.model.tokenizer_vocab, std::span(ids_).subspan(at, n + 1), mask,
                  std::span(targets_).subspan(at, n));
    }
    stride_ = micro * seq;
  }
  MicroBatch micro_batch(int index) override {
    const auto at = static_cast<std::size_t>(index * stride_);
    return {ids_.data() + at, targets_.data() + at, 0};
  }

 private:
  std::vector<std::int32_t> ids_, targets_;
  std::int64_t stride_ = 0;
};

HeldOutLoss run(Communicator& world, const SpreadLayout& at, const SpreadModel& model) {
  const std::int64_t samples = model.held_out_tokens / model.seq;
  RigOptions options;
  options.tensor = at.tensor;
  options.pipeline = at.pipeline;
  options.micro = model.micro;
  options.micro_batches = kMicroBatches / at.data;
  options.needs = {true, true};
  options.set = {"train.seed=" + std::to_string(model.seed),
                 "model.layers=" + std::to_string(model.layers),
                 "model.hidden=" + std::to_string(model.hidden),
                 "model.heads=" + std::to_string(model.heads),
                 "model.ffn=" + std::to_string(4 * model.hidden),
                 "model.vocab_size=260",
                 "model.seq_length=" + std::to_string(model.seq),
                 "eval.samples=" + std::to_string(samples),
                 "eval.at_end=true",
                 "optimizer.plugin=" + at.optimizer,
                 "backend.plugin=" + at.provider,
                 std::string("parallel.tensor.sequence_parallel=") + (at.sequence_parallel ? "true" : "false"),
                 "parallel.tensor.reduce_dtype=" + at.reduce_dtype,
                 "parallel.pipeline.schedule=" + at.schedule,
                 "parallel.data.stage=" + std::to_string(at.zero)};
  SessionRig rig(world, options);
  Session& session = rig.session();
  Evaluation evaluation(session, session.dataset(), samples);
  const Walk walks[] = {rig.train_walk(), evaluation.walk()};
  rig.bind(walks, session.optimizer());
  initialise(rig.facts().model, {0.02, EmbeddingInit::normal, rig.facts().seed}, rig.executor().parameters(),
             rig.data(), rig.backend());
  const int set = evaluation.sets().front();
  HeldOutLoss losses{at.name(), evaluation.run(set).mean(), 0};
  for (int step = 0; step < model.steps; ++step) {
    DatasetBatches batches(session.dataset(), rig.facts(), model.micro, step);
    rig.executor().train_step(walks[0], batches, {2e-3, 1.0, step + 1}, session.optimizer());
  }
  losses.after = evaluation.run(set).mean();
  return losses;
}

}  // namespace

std::string SpreadLayout::name() const {
  std::string text = "tensor " + std::to_string(tensor) + (sequence_parallel ? " sp" : "") + ", pipeline " +
                     std::to_string(pipeline) + (pipeline > 1 ? " " + schedule : "") + ", data " + std::to_string(data);
  if (data > 1) text += " zero " + std::to_string(zero);
  if (rounds_parts()) text += ", BF16 parts";
  return text + ", " + provider + ", " + optimizer;
}

Spread spread_of(const std::vector<HeldOutLoss>& losses) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  double low[2] = {kFar, kFar}, high[2] = {-kFar, -kFar};
  for (const HeldOutLoss& loss : losses) {
    for (const int when : {0, 1}) {
      const double value = when == 0 ? loss.before : loss.after;
      low[when] = std::min(low[when], value);
      high[when] = std::max(high[when], value);
    }
  }
  return {high[0] - low[0], high[1] - low[1]};
}

std::vector<SpreadLayout> spread_layouts() {
  std::vector<SpreadLayout> list(1);
  const auto add = [&](int tensor, int pipeline, int data, int zero, const char* schedule, bool sp) {
    list.push_back({tensor, pipeline, data, zero, schedule, sp});
  };
  add(2, 1, 1, 1, "1f1b", false);
  add(4, 1, 1, 1, "1f1b", true);
  add(1, 2, 1, 1, "zero_bubble", false);
  add(1, 4, 1, 1, "1f1b", false);
  add(1, 1, 2, 0, "1f1b", false);
  add(1, 1, 4, 1, "1f1b", false);
  add(1, 1, 2, 2, "1f1b", false);
  add(1, 1, 4, 3, "1f1b", false);
  add(2, 1, 2, 1, "1f1b", true);
  add(1, 2, 4, 1, "gpipe", false);
  add(2, 2, 2, 1, "interleaved", true);
  add(4, 2, 1, 1, "1f1b", false);
  add(2, 1, 1, 1, "1f1b", false);
  list.back().reduce_dtype = "auto";
  add(4, 1, 1, 1, "1f1b", true);
  list.back().reduce_dtype = "auto";
  return list;
}

SpreadResult measure_spread(Communicator& world, const std::vector<SpreadLayout>& layouts, const SpreadModel& model) {
  // Each layout with the other provider, too: a maximum over layouts is to be held against one over as many.
  std::vector<SpreadLayout> runs = layouts;
  std::vector<std::size_t> twins(layouts.size());
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (model.steps == 0 || layouts[i].rounds_parts()) continue;
    twins[i] = runs.size();
    runs.push_back(layouts[i]);
    runs.back().provider = "reference";
  }
  runs.emplace_back().optimizer = "optim_fp32";
  std::vector<int> ranks;
  for (const SpreadLayout& at : runs) ranks.push_back(at.ranks());
  std::vector<double> numbers(2 * runs.size());
  run_packed(world, ranks, [&](Communicator& group, std::size_t i) {
    const HeldOutLoss losses = run(group, runs[i], model);
    if (group.rank() != 0) return;
    numbers[2 * i] = losses.before;
    numbers[2 * i + 1] = losses.after;
  });
  class HostStream final : public Stream {
  } stream;
  const View view = View::vector(numbers.data(), std::ssize(numbers), DType::f64);
  world.run({Verb::all_reduce, view, view, Reduce::sum_rank_order, 0, 0}, stream);
  const auto loss_of = [&](std::size_t i) { return HeldOutLoss{runs[i].name(), numbers[2 * i], numbers[2 * i + 1]}; };
  SpreadResult result;
  result.fp32 = loss_of(runs.size() - 1);
  std::vector<HeldOutLoss> exact, rounded{loss_of(0)};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    result.layouts.push_back(loss_of(i));
    (runs[i].rounds_parts() ? rounded : exact).push_back(result.layouts[i]);
    if (twins[i] == 0) continue;
    result.other_provider.push_back(loss_of(twins[i]));
    const Spread pair = spread_of({result.layouts[i], result.other_provider.back()});
    result.providers.before = std::max(result.providers.before, pair.before);
    result.providers.after = std::max(result.providers.after, pair.after);
  }
  result.layouts_apart = spread_of(exact);
  result.rounded_parts = spread_of(rounded);
  result.precisions = spread_of({result.layouts[0], result.fp32});
  return result;
}

}  // namespace espalier::testing_support
