#include "ranks/pipeline/pipeline_run.hpp"

#include "model/initialise.hpp"

namespace espalier::testing_support {
namespace {

using namespace app;

RigOptions rig_options(const RunOptions& options, std::unique_ptr<HookedData>& hooked) {
  RigOptions rig;
  rig.tensor = options.tensor;
  rig.pipeline = options.pipeline;
  rig.micro = 2;
  rig.micro_batches = options.micro_batches;
  rig.set = {"model.layers=8",
             "model.hidden=32",
             "model.heads=4",
             "model.ffn=128",
             "model.vocab_size=263",
             "model.seq_length=16",
             "model.attention_dropout=0.1",
             "model.hidden_dropout=0.1",
             "train.lr=1e-2",
             "parallel.pipeline.schedule=" + options.schedule,
             std::string("model.tied_head=") + (options.tied ? "true" : "false")};
  rig.set.insert(rig.set.end(), options.more.begin(), options.more.end());
  rig.change = [&hooked](ExecutorSetup& setup) {
    hooked = std::make_unique<HookedData>(*setup.data);
    setup.data = hooked.get();
  };
  return rig;
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
    : rig_(world, rig_options(options, data_)),
      train_(rig_.train_walk()),
      valid_{Mode::forward_only, train_.samples, train_.seq, 6 / rig_.facts().grid.data},
      batches_(rig_.facts().grid, train_) {
  const Walk walks[] = {train_, valid_};
  rig_.bind(walks, session().optimizer(), InitialWeights{}.std);
}

Verdict PipelineRun::step() {
  batches_.begin(steps_++);
  return executor().train_step(train_, batches_, {session().recipe().train.rate.lr, 1.0, steps_},
                               session().optimizer());
}

double PipelineRun::evaluate() {
  SomeBatches batches(rig_.facts().grid, valid_);
  batches.begin(1000);
  const EvalResult result = executor().evaluate(valid_, batches);
  return result.loss_sum / static_cast<double>(result.tokens);
}

std::int64_t PipelineRun::sent_bytes() {
  std::int64_t bytes = 0;
  for (const CommTotal& total : rig_.counters().totals()) {
    if (total.group == "pipeline" && total.verb == Verb::send) bytes += total.bytes;
  }
  return bytes;
}

std::map<std::string, std::vector<float>> PipelineRun::masters() { return rig_.gather("master"); }

int PipelineRun::position_of(std::string_view name) {
  const auto locals = executor().parameters();
  for (std::size_t p = 0; p < locals.size(); ++p) {
    if (locals[p].parameter.name == name) return static_cast<int>(p);
  }
  return -1;
}

std::vector<std::byte> PipelineRun::tied_copy() {
  const int position = position_of("word_embeddings.weight");
  if (position < 0) return {};
  const int layer = executor().parameters()[static_cast<std::size_t>(position)].parameter.layer;
  data_->acquire(layer, Need::all, rig_.stream());
  const View weight = data_->weight(position);
  const auto* begin = static_cast<const std::byte*>(weight.data);
  std::vector<std::byte> copy(begin, begin + weight.bytes());
  data_->release(layer, Need::all);
  return copy;
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
  wait_asleep(world);
  return result;
}

}  // namespace espalier::testing_support
