#include "ranks/tensor/layout_run.hpp"

#include <algorithm>
#include <cmath>

#include "espalier/random.hpp"
#include "model/initialise.hpp"
#include "session/builtins.hpp"
#include "telemetry/log.hpp"

namespace espalier::testing_support {
namespace {

std::uint32_t hash(std::int64_t sample, std::int64_t position) {
  return philox({77, 78}, {static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(position), 0, 0})[0];
}

}  // namespace

ModelShape small_model() {
  ModelShape shape;
  shape.layers = 2;
  shape.hidden = 48;
  shape.heads = 12;
  shape.ffn = 96;
  shape.vocab = 61;
  shape.tokenizer_vocab = 59;
  shape.seq_length = 12;
  return shape;
}

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << "tensor " << layout.tensor << " data " << layout.data << (layout.sequence_parallel ? " sp" : "")
             << (layout.overlap ? "" : " no overlap") << " zero " << layout.zero << " " << layout.optimizer << " "
             << layout.provider;
}

HashedBatches::HashedBatches(const ModelShape& shape, const Layout& layout, int data_rank, std::int64_t step)
    : seq_(shape.seq_length),
      micro_(layout.micro),
      data_(layout.data),
      data_rank_(data_rank),
      first_(step * layout.global),
      samples_(layout.global / layout.data) {
  const std::int64_t ids = shape.tokenizer_vocab > 0 ? shape.tokenizer_vocab : shape.vocab;
  ids_.resize(static_cast<std::size_t>(samples_ * seq_));
  targets_.resize(ids_.size());
  for (std::int64_t sample = first_; sample < first_ + layout.global; ++sample) {
    const std::int64_t at = place(sample);
    if (at < 0) continue;
    const auto token = [&](std::int64_t p) { return static_cast<std::int32_t>(hash(sample, p) % ids); };
    for (std::int64_t p = 0; p < seq_; ++p) {
      ids_[static_cast<std::size_t>(at + p)] = token(p);
      targets_[static_cast<std::size_t>(at + p)] = hash(sample, p + 1000) % 7 == 0 ? -1 : token(p + 1);
    }
  }
}

std::int64_t HashedBatches::place(std::int64_t sample) const {
  const std::int64_t block = (sample - first_) / micro_;
  if (block % data_ != data_rank_) return -1;
  return (block / data_ * micro_ + (sample - first_) % micro_) * seq_;
}

MicroBatch HashedBatches::micro_batch(int index) {
  const auto at = static_cast<std::size_t>(index * micro_ * seq_);
  return {ids_.data() + at, targets_.data() + at, first_ + (index * data_ + data_rank_) * micro_};
}

void HashedBatches::keep(std::int64_t sample, std::int64_t counts) {
  const std::int64_t at = place(sample);
  if (at < 0) return;
  for (std::int64_t p = 0; p < seq_; ++p) {
    auto& target = targets_[static_cast<std::size_t>(at + p)];
    target = p < counts ? ids_[static_cast<std::size_t>(at + p)] : -1;
  }
}

template <class Interface>
Owned<Interface> LayoutRun::make(const std::string& plugin, std::map<std::string, ConfigValue::Data> options) {
  const LoadedPlugin& loaded = host_.load(plugin);
  auto table = std::make_unique<ConfigTable>();
  for (auto& [key, data] : options) table->values[key].data = std::move(data);
  std::vector<ConfigProblem> problems;
  check_options(*table, "test", loaded.options<Interface>(), {}, problems);
  throw_if_any(problems);
  hosts_.push_back(std::make_unique<ComponentHost>(plugin, services_));
  tables_.push_back(std::move(table));
  return host_.create<Interface>(loaded, ConfigView(*tables_.back(), "test"), *hosts_.back());
}

void LayoutRun::make_groups(Communicator& world) {
  Grid& grid = services_.facts.grid;
  grid.tensor = layout_.tensor;
  grid.data = layout_.data;
  grid.tensor_rank = world.rank() % grid.tensor;
  grid.data_rank = world.rank() / grid.tensor;
  world_ = make_counting_communicator(world.split(0, world.rank(), "world"), counters_);
  tensor_group_ = world_->split(grid.data_rank, grid.tensor_rank, "tensor");
  data_group_ = world_->split(grid.tensor_rank, grid.data_rank, "data");
  pipeline_group_ = make_self_communicator("pipeline");
  services_.groups[static_cast<std::size_t>(Group::world)] = world_.get();
  services_.groups[static_cast<std::size_t>(Group::tensor)] = tensor_group_.get();
  services_.groups[static_cast<std::size_t>(Group::data)] = data_group_.get();
  services_.groups[static_cast<std::size_t>(Group::pipeline)] = pipeline_group_.get();
}

LayoutRun::LayoutRun(Communicator& world, const ModelShape& model, const Layout& layout)
    : layout_(layout),
      host_(std::vector<std::filesystem::path>{std::filesystem::path(ESPALIER_PLUGIN_DIR)}),
      threads_(make_thread_pool(1)) {
  start_log(world.rank(), world.size(), LogLevel::warning);
  add_builtins(host_);
  services_.facts.model = model;
  const std::int64_t micro_batches = layout.global / layout.data / layout.micro;
  services_.facts.batch.micro_batches = {layout.micro, micro_batches};
  services_.threads = threads_.get();
  optimizer_ = make<Optimizer>(layout.optimizer);
  if (layout.probe) probe_ = std::make_unique<GradientProbe>(*optimizer_);
  services_.facts.precision = optimizer_->precision();
  backend_ = make<Backend>(layout.provider);
  services_.backend = backend_.get();
  make_groups(world);
  tensor_ = make<TensorParallel>(
      "parallel_tensor",
      {{"sequence_parallel", layout.sequence_parallel}, {"overlap", layout.overlap}, {"reduction", layout.reduction}});
  pipeline_ = make<PipelineParallel>("none");
  data_ = make<DataParallel>("parallel_zero", {{"stage", std::int64_t{layout.zero}}});
  parameters_ = std::make_unique<ParameterList>(model);

  ExecutorSetup setup;
  setup.facts = &services_.facts;
  setup.parameters = parameters_.get();
  setup.backend = backend_.get();
  setup.tensor = tensor_.get();
  setup.pipeline = pipeline_.get();
  setup.data = data_.get();
  setup.world = world_.get();
  setup.pipeline_group = pipeline_group_.get();
  setup.recompute = layout.recompute;
  executor_ = std::make_unique<Executor>(setup);
  train_ = {Mode::train, layout.micro, model.seq_length, static_cast<int>(micro_batches)};
  eval_ = train_;
  eval_.mode = Mode::forward_only;
  const Walk walks[] = {train_, eval_};
  executor_->bind(walks, optimizer());
  InitialWeights how;
  how.std = layout.std;
  initialise(services_.facts.model, how, executor_->parameters(), *data_, *backend_);
}

Verdict LayoutRun::step(std::int64_t number) {
  HashedBatches source = batches(number);
  return step(source, number);
}

Verdict LayoutRun::step(BatchSource& source, std::int64_t number) {
  StepSettings settings;
  settings.lr = 1e-3;
  settings.clip = 1.0;
  settings.applied_steps = number + 1;
  return executor_->train_step(train_, source, settings, optimizer());
}

EvalResult LayoutRun::evaluate(std::int64_t number) {
  HashedBatches source = batches(number);
  return executor_->evaluate(eval_, source);
}

std::map<std::string, std::vector<float>> LayoutRun::gather(std::string_view state) {
  std::map<std::string, std::vector<float>> all;
  for (const Parameter& parameter : parameters_->all()) {
    all[std::string(parameter.name)] =
        gather_logical(parameter, state, data_->state(), executor_->parameters(), *backend_, *world_);
  }
  return all;
}

std::unique_ptr<LayoutRun> run_alone(const ModelShape& model, Layout layout) {
  const auto self = make_self_communicator("world");
  layout.tensor = layout.data = 1;
  layout.sequence_parallel = false;
  return std::make_unique<LayoutRun>(*self, model, layout);
}

void expect_gradients(LayoutRun& run, LayoutRun& alone, double share) {
  const auto expected = alone.gather(GradientProbe::kState), found = run.gather(GradientProbe::kState);
  const std::int64_t head_dim = run.facts().model.head_dim();
  for (const auto& [name, truth] : expected) {
    const auto& values = found.at(name);
    ASSERT_EQ(values.size(), truth.size()) << name;
    double squares = 0;
    for (const float value : truth) squares += static_cast<double>(value) * value;
    const double rms = std::sqrt(squares / static_cast<double>(truth.size()));
    const bool qkv_bias = name.find("query_key_value.bias") != std::string::npos;
    for (std::size_t i = 0; i < truth.size(); ++i) {
      const bool key_bias = qkv_bias && static_cast<std::int64_t>(i) / head_dim % 3 == 1;
      ASSERT_NEAR(values[i], truth[i], (key_bias ? 0 : share * rms) + 1e-8) << name << " element " << i;
    }
  }
}

}  // namespace espalier::testing_support
