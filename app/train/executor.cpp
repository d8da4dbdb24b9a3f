#include "train/executor.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "espalier/error.hpp"
#include "espalier/parallel/checker.hpp"
#include "model/dry.hpp"
#include "model/model_context.hpp"
#include "telemetry/log.hpp"
#include "train/messages.hpp"
#include "train/verdict.hpp"

namespace espalier::app {
namespace {

/// A walk's instruction list on this stage.
struct Planned {
  Walk walk;
  std::vector<Instruction> list;
  std::vector<LayerUse> uses;  ///< of weights, in order
};

std::vector<LayerRange> own_parts(const PipelineParallel& pipeline, const ModelShape& shape, int stage) {
  const std::vector<double> costs = layer_costs(shape);
  const std::vector<int> cut = pipeline.cut(costs);
  const bool complete = cut.size() == static_cast<std::size_t>(pipeline.stages() * pipeline.chunks()) + 1 &&
                        cut.front() == 0 && cut.back() == static_cast<int>(costs.size()) &&
                        std::adjacent_find(cut.begin(), cut.end(), std::greater_equal<>()) == cut.end();
  if (!complete) {
    throw PluginError("parallel.pipeline: the plugin's cut of " + std::to_string(costs.size()) +
                      " layers is not one non-empty range for each of " + std::to_string(pipeline.stages()) +
                      " stages x " + std::to_string(pipeline.chunks()) + " chunks");
  }
  std::vector<LayerRange> parts;
  for (int chunk = 0; chunk < pipeline.chunks(); ++chunk) {
    const auto part = static_cast<std::size_t>(chunk * pipeline.stages() + stage);
    parts.push_back({cut[part], cut[part + 1]});
  }
  return parts;
}

}  // namespace

class Executor::Impl {
 public:
  explicit Impl(const ExecutorSetup& setup) : setup_(setup) {
    const ModelShape& shape = setup.facts->model;
    if (const Reason reason = setup.tensor->accepts(shape)) throw ConfigError("parallel.tensor: " + *reason);
    if (setup.pipeline->stages() != setup.pipeline_group->size()) {
      throw PluginError("parallel.pipeline: the plugin makes " + std::to_string(setup.pipeline->stages()) +
                        " stages, the recipe has " + std::to_string(setup.pipeline_group->size()));
    }
    parts_ = own_parts(*setup.pipeline, shape, setup.pipeline_group->rank());
    parameters_ = local_parameters(*setup.parameters, *setup.tensor, parts_);

    context_ = make_context(*setup.facts, *setup.parameters, *setup.backend, *setup.tensor, *setup.data);
    context_.arena = &arena_;
    context_.recompute = setup.recompute;
  }

  std::vector<Planned> plan(std::span<const Walk> walks) const {
    std::vector<Planned> result;
    for (const Walk& walk : walks) {
      const bool known = std::any_of(result.begin(), result.end(), [&](const Planned& p) { return p.walk == walk; });
      if (known) continue;
      check(walk);
      ScheduleLists lists = lists_of(*setup_.pipeline, walk.mode, walk.micro_batches);
      check_schedule(lists);
      result.push_back({walk, std::move(lists.stages[static_cast<std::size_t>(setup_.pipeline_group->rank())]), {}});
    }
    return result;
  }

  StatePlan state_plan(const std::vector<Planned>& planned) const {
    StatePlan plan;
    plan.parameters = parameters_;
    plan.precision = setup_.facts->precision;
    for (const Planned& p : planned) {
      if (p.walk.mode == Mode::train && p.list.size() > plan.schedule.size()) plan.schedule = p.list;
    }
    plan.first_layer = parts_.front().first;
    plan.end_layer = parts_.back().end;
    return plan;
  }

  /// Walks every list without memory, and notes in it which layers it uses.
  std::pair<std::size_t, std::size_t> arena_peak(std::vector<Planned>& planned, std::span<const Walk> walks) const {
    DryRun dry(context_, parameters_);
    return walk_dry(dry, planned, walks);
  }

  std::pair<std::size_t, std::size_t> walk_dry(DryRun& dry, std::vector<Planned>& planned,
                                               std::span<const Walk> walks) const {
    Model model(dry.context(), parts_, parameters_, walks);
    Messages messages(*setup_.pipeline_group, *setup_.pipeline, nullptr, dry.context().stream, true);
    struct NoBatches final : BatchSource {
      MicroBatch micro_batch(int) override { return {}; }
    } batches;
    for (Planned& p : planned) {
      model.begin(p.walk);
      for (const Instruction& instruction : p.list) run(instruction, model, messages, batches, 1.0, nullptr);
      messages.finish(model);
      p.uses = dry.take_uses();
      ESPALIER_ASSERT(dry.arena().empty());
    }
    return {dry.arena().peak_bytes(), dry.arena().peak_slots()};
  }

  void bind(std::span<const Walk> walks, const Optimizer& optimizer) {
    ESPALIER_ASSERT(model_ == nullptr);
    planned_ = plan(walks);
    Device& device = *context_.device;
    setup_.data->bind(state_plan(planned_), optimizer, *setup_.backend);
    DryRun dry(context_, parameters_);
    const auto [bytes, slots] = walk_dry(dry, planned_, walks);
    arena_.reserve(device, bytes, slots);
    setup_.backend->prepare({dry.workspace(), dry.products(), setup_.tensor_group});
    slopes_ = load_slopes(context_);
    model_ = std::make_unique<Model>(context_, parts_, parameters_, walks);
    Communicator* scatters = setup_.pipeline->scatters_messages() ? setup_.tensor_group : nullptr;
    if (scatters != nullptr && scatters->size() > 1 && !model_->same_rows_on_tensor_ranks() && setup_.world->rank() == 0) {
      log(LogLevel::warning, "pipeline", "scattered messages have no effect: with sequence parallelism each rank sends its own rows in any case");
    }
    messages_ = std::make_unique<Messages>(*setup_.pipeline_group, *setup_.pipeline, scatters, context_.stream, false);
    verdict_ = std::make_unique<VerdictMaker>(*setup_.parameters, *setup_.backend, *setup_.world);
  }

  Verdict train_step(const Walk& walk, BatchSource& batches, const StepSettings& settings, Optimizer& optimizer) {
    const Planned& planned = find(walk);
    Stream& stream = *context_.stream;
    verdict_->begin(stream);
    model_->begin(walk);
    setup_.data->begin(planned.uses, walk.micro_batches);
    const double loss_scale = optimizer.loss_scale();
    Verdict result;
    for (const Instruction& instruction : planned.list) {
      if (instruction.what != Do::step) {
        run(instruction, *model_, *messages_, batches, loss_scale, verdict_->sums());
        continue;
      }
      messages_->finish(*model_);
      VerdictInputs inputs;
      inputs.rows = walk.samples * walk.seq;
      inputs.micro_batches = walk.micro_batches;
      inputs.data = setup_.facts->grid.data;
      inputs.loss_scale = loss_scale;
      inputs.settings = settings;
      result = verdict_->step(inputs, *setup_.data, optimizer, stream);
    }
    messages_->finish(*model_);
    optimizer.after(result);
    return result;
  }

  EvalResult evaluate(const Walk& walk, BatchSource& batches) {
    const Planned& planned = find(walk);
    verdict_->begin(*context_.stream);
    model_->begin(walk);
    setup_.data->begin(planned.uses, 0);
    for (const Instruction& instruction : planned.list) {
      run(instruction, *model_, *messages_, batches, 1.0, verdict_->sums());
    }
    messages_->finish(*model_);
    const auto [loss, tokens] = verdict_->world_sums(*context_.stream);
    return {loss, static_cast<std::int64_t>(tokens)};
  }

  std::span<const LocalParameter> parameters() const { return parameters_; }
  std::span<const LayerRange> parts() const { return parts_; }
  int head_layer() const { return static_cast<int>(setup_.facts->model.layers) + 1; }
  const DataParallel& data() const { return *setup_.data; }
  void watch_logits(LogitsSink* sink) { model_->watch_logits(sink); }

 private:
  void check(const Walk& walk) const {
    const ModelShape& shape = setup_.facts->model;
    if (const Reason reason = setup_.pipeline->accepts(walk.mode, walk.micro_batches)) {
      throw ConfigError("parallel.pipeline: " + std::to_string(walk.micro_batches) + " micro-batches: " + *reason);
    }
    if (shape.positions > 0 && walk.seq > shape.positions) {
      throw ConfigError("model.positions: sequences of " + std::to_string(walk.seq) + " tokens, but only " +
                        std::to_string(shape.positions) + " learned positions");
    }
    Attention attention;
    attention.dtype = context_.working;
    attention.batch = walk.samples;
    attention.heads = context_.own_heads;
    attention.head_dim = shape.head_dim();
    attention.queries = attention.keys = walk.seq;
    attention.dropout.p = walk.mode == Mode::train ? static_cast<float>(shape.attention_dropout) : 0.0f;
    if (const Reason reason = context_.kernels.attention->supports(attention)) {
      throw ConfigError("backend: attention: " + *reason);
    }
  }

  const Planned& find(const Walk& walk) const {
    for (const Planned& planned : planned_) {
      if (planned.walk == walk) return planned;
    }
    ESPALIER_ASSERT(!"a walk that bind() was not told of");
    return planned_.front();
  }

  /// One instruction; the same code walks the lists dry.
  void run(const Instruction& at, Model& model, Messages& messages, BatchSource& batches, double loss_scale,
           double* sums) const {
    switch (at.what) {
      case Do::forward:
        messages.need(MessageKind::activation, at.chunk, at.micro_batch);
        model.forward(at.chunk, at.micro_batch, batches, sums);
        break;
      case Do::backward:
        messages.need(MessageKind::gradient, at.chunk, at.micro_batch);
        model.backward(at.chunk, at.micro_batch, loss_scale, sums);
        break;
      case Do::backward_input:
        messages.need(MessageKind::gradient, at.chunk, at.micro_batch);
        model.backward_input(at.chunk, at.micro_batch, loss_scale, sums);
        break;
      case Do::backward_weight:
        model.backward_weight(at.chunk, at.micro_batch);
        break;
      case Do::send_activation:
        messages.send(MessageKind::activation, at, model);
        break;
      case Do::send_gradient:
        messages.send(MessageKind::gradient, at, model);
        break;
      case Do::receive_activation:
        messages.receive(MessageKind::activation, at, model);
        break;
      case Do::receive_gradient:
        messages.receive(MessageKind::gradient, at, model);
        break;
      case Do::reduce_gradients:
      case Do::reduce_tied_gradients:
        if (!messages.dry()) setup_.data->reduce(at.what, *context_.stream);
        break;
      case Do::step:
        break;
    }
    messages.poll();
  }

  ExecutorSetup setup_;
  std::vector<LayerRange> parts_;
  std::vector<LocalParameter> parameters_;
  Arena arena_;
  DeviceMemory slopes_;
  ModelContext context_;
  std::vector<Planned> planned_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Messages> messages_;
  std::unique_ptr<VerdictMaker> verdict_;
};

Executor::Executor(const ExecutorSetup& setup) : impl_(std::make_unique<Impl>(setup)) {}
Executor::~Executor() = default;

std::span<const LocalParameter> Executor::parameters() const { return impl_->parameters(); }
std::span<const LayerRange> Executor::parts() const { return impl_->parts(); }
bool Executor::has_embedding() const { return impl_->parts().front().contains(0); }
bool Executor::has_head() const {
  const LayerRange& last = impl_->parts().back();
  return last.contains(impl_->head_layer());
}

StateBytes Executor::state_bytes(std::span<const Walk> walks, const Optimizer& optimizer) const {
  auto planned = impl_->plan(walks);
  return impl_->data().plan(impl_->state_plan(planned), optimizer);
}

std::size_t Executor::arena_bytes(std::span<const Walk> walks) const {
  auto planned = impl_->plan(walks);
  return impl_->arena_peak(planned, walks).first;
}

MemoryNeeds Executor::memory_needs(std::span<const Walk> walks, const Optimizer& optimizer) const {
  auto planned = impl_->plan(walks);
  return {impl_->data().plan(impl_->state_plan(planned), optimizer), impl_->arena_peak(planned, walks).first};
}

void Executor::bind(std::span<const Walk> walks, const Optimizer& optimizer) { impl_->bind(walks, optimizer); }

Verdict Executor::train_step(const Walk& walk, BatchSource& batches, const StepSettings& settings,
                             Optimizer& optimizer) {
  return impl_->train_step(walk, batches, settings, optimizer);
}

EvalResult Executor::evaluate(const Walk& walk, BatchSource& batches) { return impl_->evaluate(walk, batches); }

void Executor::watch_logits(LogitsSink* sink) { impl_->watch_logits(sink); }

}  // namespace espalier::app
