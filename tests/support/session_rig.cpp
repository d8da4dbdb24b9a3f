#include "support/session_rig.hpp"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <sstream>
#include <thread>

#include "model/gather.hpp"
#include "model/initialise.hpp"
#include "model/layout.hpp"
#include "support/patient_communicator.hpp"
#include "telemetry/log.hpp"

namespace espalier::testing_support {
namespace {

using namespace app;

class HostStream final : public Stream {};

OpenRecipe open(const RigOptions& options, Communicator& world) {
  RecipeRequest request;
  request.file = ESPALIER_SOURCE_DIR "/tests/support/rig.toml";
  // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): the first one is of three pieces
  request.overrides = {"plugins.search_path=[\"" ESPALIER_PLUGIN_DIR "\"]",
                       "parallel.tensor.size=" + std::to_string(options.tensor),
                       "parallel.pipeline.size=" + std::to_string(options.pipeline),
                       "train.micro_batch_size=" + std::to_string(options.micro),
                       "train.gradient_accumulation_steps=" + std::to_string(options.micro_batches)};
  request.overrides.insert(request.overrides.end(), options.set.begin(), options.set.end());
  return open_recipe(request, world);
}

}  // namespace

std::vector<std::string> keys_of(const ModelShape& model) {
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  const auto number = [](double value) {
    std::ostringstream text;
    text << std::setprecision(17) << value;
    return text.str();
  };
  std::vector<std::string> keys = {"model.layers=" + std::to_string(model.layers),
                                   "model.hidden=" + std::to_string(model.hidden),
                                   "model.heads=" + std::to_string(model.heads),
                                   "model.ffn=" + std::to_string(model.ffn),
                                   "model.vocab_size=" + std::to_string(model.vocab),
                                   "model.seq_length=" + std::to_string(model.seq_length),
                                   std::string("model.embedding_norm=") + truth(model.embedding_norm),
                                   std::string("model.tied_head=") + truth(model.tied_head),
                                   "model.attention_dropout=" + number(model.attention_dropout),
                                   "model.hidden_dropout=" + number(model.hidden_dropout),
                                   "model.layernorm_epsilon=" + number(model.norm_eps)};
  if (model.positions > 0) keys.push_back("model.position=learned");
  return keys;
}

SessionRig::SessionRig(Communicator& world, const RigOptions& options)
    : options_(options),
      counted_(make_counting_communicator(std::make_unique<PatientCommunicator>(world.split(0, world.rank(), "world")),
                                          counters_)),
      opened_(open(options, *counted_)) {
  start_log(world.rank(), world.size(), LogLevel::warning);
  Session::Needs needs = options.needs;
  needs.tokenizer_vocab = options.tokenizer_vocab;
  session_ = std::make_unique<Session>(*counted_, opened_.recipe, *opened_.plugins, needs);
  setup_ = session_->executor_setup();
  executor_ = &session_->executor();
  if (!options.change) return;
  options.change(setup_);
  own_executor_ = std::make_unique<Executor>(setup_);
  executor_ = own_executor_.get();
}

void SessionRig::bind(std::span<const Walk> walks, Optimizer& optimizer) { executor_->bind(walks, optimizer); }

void SessionRig::bind(std::span<const Walk> walks, Optimizer& optimizer, double std) {
  bind(walks, optimizer);
  InitialWeights how;
  how.std = std;
  initialise(facts().model, how, executor_->parameters(), data(), backend());
}

Walk SessionRig::train_walk() const {
  return {Mode::train, options_.micro, facts().model.seq_length, static_cast<int>(options_.micro_batches)};
}

Walk SessionRig::eval_walk() const {
  Walk walk = train_walk();
  walk.mode = Mode::forward_only;
  return walk;
}

std::map<std::string, std::vector<float>> SessionRig::gather(std::string_view state) {
  std::vector<std::size_t> begins;  // of each logical parameter in `flat`
  std::size_t elements = 0;
  for (const Parameter& parameter : parameters().all()) {
    begins.push_back(elements);
    elements += static_cast<std::size_t>(parameter.shape.elements());
  }
  std::vector<float> flat(elements, 0.0f);
  Device& device = backend().device();
  for (const StatePiece& piece : data().state()) {
    if (piece.parameter < 0 || piece.state != state || !piece.writes) continue;
    const LocalParameter& local = executor_->parameters()[static_cast<std::size_t>(piece.parameter)];
    float* begin = flat.data() + begins[static_cast<std::size_t>(local.parameter.index)];
    for_each_run(local, piece, [&](const Run& run) {
      if (run.logical < 0) return;
      const std::int64_t at = run.local - piece.begin;
      device.copy(piece.data.flat_range(at, at + run.length), View::vector(begin + run.logical, run.length, DType::f32),
                  stream());
    });
  }
  device.wait(stream());
  sum_over_world(flat, backend(), world());
  std::map<std::string, std::vector<float>> all;
  for (const Parameter& parameter : parameters().all()) {
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(begins[static_cast<std::size_t>(parameter.index)]);
    all[std::string(parameter.name)] = {begin, begin + parameter.shape.elements()};
  }
  return all;
}

void run_packed(Communicator& world, std::span<const int> ranks,
                const std::function<void(Communicator& group, std::size_t job)>& body) {
  for (int size = world.size(); size > 0; --size) {
    if (std::find(ranks.begin(), ranks.end(), size) == ranks.end()) continue;
    const int parts = world.size() / size, part = world.rank() / size;
    const auto group = world.split(part < parts ? part : -1, world.rank(), "world");
    int number = 0;
    for (std::size_t job = 0; job < ranks.size(); ++job) {
      if (ranks[job] == size && number++ % parts == part) body(*group, job);
    }
    wait_asleep(world);
  }
}

void wait_asleep(Communicator& world) {
  HostStream stream;
  const Request barrier = world.start({}, stream);
  while (!world.done(barrier)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  world.finish(barrier, stream);
}

}  // namespace espalier::testing_support
