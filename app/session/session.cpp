#include "session/session.hpp"

#include <fmt/format.h>

#include <type_traits>

#include "session/builtins.hpp"
#include "session/overrides.hpp"
#include "session/threads_per_rank.hpp"
#include "telemetry/log.hpp"
#include "text/document_ends.hpp"
#include "train/phase.hpp"

namespace espalier::app {

template <class Interface>
Owned<Interface> Session::make(PluginHost& host, const PluginChoice& choice) {
  const LoadedPlugin& plugin = host.load(choice.plugin, choice.device);
  Communicator* const host_world = std::is_same_v<Interface, Dataset> ? &world() : nullptr;
  hosts_.push_back(std::make_unique<ComponentHost>(std::string(plugin.name()), services_, host_world));
  return host.create<Interface>(plugin, ConfigView(choice.options, choice.path), *hosts_.back());
}

Session::Session(Communicator& world, Recipe recipe, PluginHost& host, const Needs& needs)
    : world_(world), recipe_(std::move(recipe)) {
  add_builtins(host);
  services_.facts = facts_of(recipe_, world_.rank());
  const int threads = threads_per_rank(recipe_.train.threads, detect_launch().local_size);
  threads_ = make_thread_pool(threads);
  services_.threads = threads_.get();
  phase(world_, [&] {
    optimizer_ = make<Optimizer>(host, recipe_.optimizer);
    services_.facts.precision = optimizer_->precision();
    make_backend(host);
  });
  make_groups();
  if (needs.device_found) needs.device_found();
  // Strategies and data may communicate while they are made; what one rank alone throws there ends the job (run_on_world).
  tensor_ = make<TensorParallel>(host, recipe_.tensor.choice);
  pipeline_ = make<PipelineParallel>(host, recipe_.pipeline.choice);
  data_parallel_ = make<DataParallel>(host, recipe_.data_parallel.choice);
  make_text(host, needs);
  phase(world_, [&] { make_model(); });
  log(LogLevel::info, "backend", backend_->description());
  log(LogLevel::info, "optimizer", optimizer_->description());
}

Session::~Session() = default;

void Session::make_backend(PluginHost& host) {
  Owned<Backend> base = make<Backend>(host, recipe_.backend.choice);
  std::map<std::string, Owned<Backend>> overrides;
  for (const auto& [family, provider] : recipe_.backend.overrides) {
    PluginChoice choice = recipe_.backend.choice;
    if (provider != choice.plugin || choice.device != "cpu") choice.options = {};  // another provider: its own defaults
    choice.plugin = provider;
    choice.device = "cpu";
    std::vector<ConfigProblem> problems;
    check_options(choice.options, choice.path, host.load(provider).options<Backend>(), {}, problems);
    throw_if_any(problems);
    overrides[family] = make<Backend>(host, choice);
  }
  backend_ = override_families(std::move(base), std::move(overrides));
  if (const Reason reason = backend_->supports(services_.facts.precision)) {
    throw DeviceError(fmt::format("{} cannot train with {}: {}", backend_->description(), recipe_.optimizer.plugin, *reason));
  }
  services_.backend = backend_.get();
}

void Session::make_groups() {
  const Grid& grid = services_.facts.grid;
  if (recipe_.debug.check_collectives && world_.size() > 1) {
    check_ = std::make_shared<CollectiveCheck>(recipe_.debug.collective_timeout);
    const auto whole = [&] { return world_.split(0, world_.rank(), "world, host memory"); };
    checked_world_ = make_checking_communicator(whole(), whole(), check_);
  }
  // Ranks that differ in one coordinate only form a group; its order is that coordinate.
  const auto split = [&](int colour, int key, std::string_view name) {
    auto group = backend_->wrap(world_.split(colour, key, name));
    if (check_ && group->size() > 1) {
      group = make_checking_communicator(std::move(group), world_.split(colour, key, name), check_);
    }
    return group->size() > 1 ? make_counting_communicator(std::move(group), comm_counters_) : std::move(group);
  };
  wrapped_world_ = split(0, world_.rank(), "world");
  tensor_group_ = split(grid.pipeline_rank * grid.data + grid.data_rank, grid.tensor_rank, "tensor");
  data_group_ = split(grid.pipeline_rank * grid.tensor + grid.tensor_rank, grid.data_rank, "data");
  pipeline_group_ = split(grid.data_rank * grid.tensor + grid.tensor_rank, grid.pipeline_rank, "pipeline");
  services_.groups[static_cast<std::size_t>(Group::world)] = wrapped_world_.get();
  services_.groups[static_cast<std::size_t>(Group::tensor)] = tensor_group_.get();
  services_.groups[static_cast<std::size_t>(Group::data)] = data_group_.get();
  services_.groups[static_cast<std::size_t>(Group::pipeline)] = pipeline_group_.get();
}

void Session::make_text(PluginHost& host, const Needs& needs) {
  if (!needs.text) {
    ESPALIER_ASSERT(!needs.data);
    if (needs.tokenizer_vocab > 0) services_.facts.model.tokenizer_vocab = needs.tokenizer_vocab;
    return;
  }
  phase(world_, [&] {
    tokenizer_ = make<Tokenizer>(host, recipe_.tokenizer);
    const std::int64_t ids = tokenizer_->vocab_size();
    if (ids > recipe_.model.vocab_size) {
      throw ConfigError(fmt::format("model.vocab_size: {} rows cannot hold the {} ids of tokenizer {}", recipe_.model.vocab_size, ids,
                                    tokenizer_->fingerprint()));
    }
    services_.facts.model.tokenizer_vocab = ids;
    services_.tokenizer = tokenizer_.get();
  });
  if (!needs.data) return;
  dataset_ = make<Dataset>(host, recipe_.data);
  if (!recipe_.train.eod_mask_loss) return;
  phase(world_, [&] {
    if (tokenizer_->end_of_document() < 0) {
      throw ConfigError("train.eod_mask_loss: tokenizer " + tokenizer_->fingerprint() + " has no end-of-document id");
    }
    masked_dataset_ = without_document_starts(*dataset_, tokenizer_->end_of_document());
  });
}

void Session::make_model() {
  const DecayRules& rules = recipe_.train.weight_decay;
  parameters_ = std::make_unique<ParameterList>(services_.facts.model, [&rules](const Parameter& parameter) {
    return takes_weight_decay(rules, parameter.name, parameter.shape.rank() >= 2);
  });
  setup_.facts = &services_.facts;
  setup_.parameters = parameters_.get();
  setup_.backend = backend_.get();
  setup_.tensor = tensor_.get();
  setup_.pipeline = pipeline_.get();
  setup_.data = data_parallel_.get();
  if (check_) {
    named_data_ = std::make_unique<NamedData>(*data_parallel_, check_);
    setup_.data = named_data_.get();
  }
  setup_.world = wrapped_world_.get();
  setup_.pipeline_group = pipeline_group_.get();
  setup_.tensor_group = tensor_group_.get();
  setup_.recompute = recipe_.train.recompute;
  executor_ = std::make_unique<Executor>(setup_);
}

void Session::begin_step(std::int64_t step) {
  if (check_) check_->begin_step(step);
}

std::string Session::provider() const {
  const std::string threads = fmt::format(", {} thread{}", threads_->size(), threads_->size() == 1 ? "" : "s");
  std::string text(backend_->description());
  if (!text.ends_with(threads)) text += threads;  // some providers say it themselves
  return text;
}

}  // namespace espalier::app
