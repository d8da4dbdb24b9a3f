#include "ranks/pipeline/pipeline_run.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model/gather.hpp"
#include "model/initialise.hpp"
#include "telemetry/log.hpp"
#include "train/phase.hpp"

namespace espalier::testing_support {
namespace {

namespace fs = std::filesystem;
using namespace app;

class HostStream final : public Stream {};

constexpr const char* kRecipe = R"([model]
layers = 8
hidden = 32
heads = 4
vocab_size = 263
seq_length = 16
attention_dropout = 0.1
hidden_dropout = 0.1
[train]
train_iters = 100
lr = 1e-2
lr_decay_style = "constant"
threads = 1
[optimizer]
plugin = "optim_fp32"
[data]
plugin = "synthetic"
[parallel.data]
plugin = "parallel_zero"
[parallel.pipeline]
plugin = "parallel_pipeline"
[parallel.tensor]
plugin = "parallel_tensor"
[log]
level = "warning"
)";

RecipeRequest request_for(Communicator& world, const RunOptions& options) {
  const fs::path file = fs::path(testing::TempDir()) / ("pipeline_run_" + std::to_string(world.size()) + ".toml");
  phase(world, [&] {
    if (world.rank() == 0) std::ofstream(file) << kRecipe;
  });
  RecipeRequest request;
  request.file = file.string();
  request.overrides = {"plugins.search_path=[\"" ESPALIER_PLUGIN_DIR "\"]",
                       "parallel.pipeline.size=" + std::to_string(options.pipeline),
                       "parallel.tensor.size=" + std::to_string(options.tensor),
                       "parallel.pipeline.schedule=" + options.schedule,
                       std::string("model.tied_head=") + (options.tied ? "true" : "false"),
                       "train.micro_batch_size=2",
                       "train.gradient_accumulation_steps=" + std::to_string(options.micro_batches)};
  request.overrides.insert(request.overrides.end(), options.more.begin(), options.more.end());
  return request;
}

}  // namespace

SomeBatches::SomeBatches(const Grid& grid, const Walk& walk) : grid_(grid), walk_(walk) {
  const auto tokens = static_cast<std::size_t>(walk.samples * walk.seq * walk.micro_batches);
  ids_.resize(tokens);
  targets_.resize(tokens);
}

MicroBatch SomeBatches::micro_batch(int index) {
  const std::int64_t size = walk_.samples * walk_.seq;
  const std::int64_t all = walk_.samples * walk_.micro_batches * grid_.data;
  const std::int64_t first = step_ * all + (std::int64_t{index} * grid_.data + grid_.data_rank) * walk_.samples;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t sample = first + i / walk_.seq, position = i % walk_.seq;
    const auto token = [&](std::int64_t at) {
      return static_cast<std::int32_t>((sample * 31 + at * (at + sample)) % 97);
    };
    const auto at = static_cast<std::size_t>(index * size + i);
    ids_[at] = token(position);
    targets_[at] = (sample + position) % 11 == 0 ? -1 : token(position + 1);
  }
  const auto at = static_cast<std::size_t>(index * size);
  return {ids_.data() + at, targets_.data() + at, first};
}

PipelineRun::PipelineRun(Communicator& world, const RunOptions& options)
    : world_(world), opened_(open_recipe(request_for(world, options), world)) {
  start_log(world.rank(), world.size(), LogLevel::warning);
  Recipe recipe = opened_.recipe;
  const std::int64_t micro = recipe.train.batch.micro_batch, seq = recipe.model.seq_length;
  session_ = std::make_unique<Session>(world, std::move(recipe), *opened_.plugins, Session::Needs{false});
  const Grid& grid = session_->facts().grid;
  counters_ = std::make_shared<CommCounters>();
  group_ = make_counting_communicator(
      world.split(grid.data_rank * grid.tensor + grid.tensor_rank, grid.pipeline_rank, "pipeline"), counters_);
  tensor_group_ = world.split(grid.pipeline_rank * grid.data + grid.data_rank, grid.tensor_rank, "tensor");
  data_ = std::make_unique<HookedData>(session_->data_parallel());

  ExecutorSetup setup;
  setup.facts = &session_->facts();
  setup.parameters = &session_->parameters();
  setup.backend = &session_->backend();
  setup.tensor = &session_->tensor();
  setup.pipeline = &session_->pipeline();
  setup.data = data_.get();
  setup.world = &world;
  setup.pipeline_group = group_.get();
  setup.tensor_group = tensor_group_.get();
  setup.recompute = session_->recipe().train.recompute;
  executor_ = std::make_unique<Executor>(setup);
  train_ = {Mode::train, micro, seq, options.micro_batches};
  valid_ = {Mode::forward_only, micro, seq, 6 / grid.data};
  const Walk walks[] = {train_, valid_};
  executor_->bind(walks, session_->optimizer());
  initialise(session_->facts().model, {}, executor_->parameters(), *data_, session_->backend());
  batches_ = std::make_unique<SomeBatches>(grid, train_);
}

Verdict PipelineRun::step() {
  batches_->begin(steps_++);
  return executor_->train_step(train_, *batches_, {session_->recipe().train.rate.lr, 1.0, steps_},
                               session_->optimizer());
}

double PipelineRun::evaluate() {
  SomeBatches batches(session_->facts().grid, valid_);
  batches.begin(1000);
  const EvalResult result = executor_->evaluate(valid_, batches);
  return result.loss_sum / static_cast<double>(result.tokens);
}

std::int64_t PipelineRun::sent_bytes() const {
  std::int64_t bytes = 0;
  for (const CommTotal& total : counters_->totals()) bytes += total.bytes;
  return bytes;
}

std::map<std::string, std::vector<float>> PipelineRun::masters() {
  std::map<std::string, std::vector<float>> all;
  for (const Parameter& parameter : session_->parameters().all()) {
    all[std::string(parameter.name)] =
        gather_logical(parameter, "master", data_->state(), executor_->parameters(), session_->backend(), world_);
  }
  return all;
}

int PipelineRun::position_of(std::string_view name) const {
  const auto locals = executor_->parameters();
  for (std::size_t p = 0; p < locals.size(); ++p) {
    if (locals[p].parameter.name == name) return static_cast<int>(p);
  }
  return -1;
}

std::vector<std::byte> PipelineRun::tied_copy() {
  const int position = position_of("word_embeddings.weight");
  if (position < 0) return {};
  const View weight = data_->weight(position);
  const auto* begin = static_cast<const std::byte*>(weight.data);
  return {begin, begin + weight.bytes()};
}

RunResult run_steps(Communicator& world, const RunOptions& options, int steps) {
  RunResult result;
  const int ranks = options.pipeline * options.data * options.tensor;
  ESPALIER_ASSERT(ranks <= world.size());
  const auto part = world.split(world.rank() < ranks ? 0 : -1, world.rank(), "part");
  if (part != nullptr) {
    PipelineRun run(*part, options);
    for (int step = 0; step < steps; ++step) {
      const Verdict verdict = run.step();
      result.losses.push_back(verdict.loss_sum / static_cast<double>(verdict.tokens));
      result.norms.push_back(verdict.norm);
    }
    result.valid = run.evaluate();
    result.masters = run.masters();
  }
  HostStream stream;
  world.run({}, stream);  // a barrier that yields: those that wait leave the cores to those that work
  return result;
}

}  // namespace espalier::testing_support
