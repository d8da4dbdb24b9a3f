#include "support/traffic_run.hpp"

#include "support/hashed_batches.hpp"

namespace espalier::testing_support {
namespace {

using namespace app;

constexpr const char* kRecompute[] = {"none", "selective", "full"};

RigOptions rig_options(const TrafficCase& at) {
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  RigOptions options;
  options.tensor = at.tensor;
  options.pipeline = at.pipeline;
  options.micro_batches = at.micro_batches;
  options.set = {"model.layers=4",
                 "model.hidden=256",
                 "model.heads=8",
                 "model.ffn=1024",
                 "model.vocab_size=512",
                 "model.seq_length=8",
                 std::string("train.recompute=") + kRecompute[static_cast<int>(at.recompute)],
                 "optimizer.plugin=" + at.optimizer,
                 "backend.plugin=kernels_fused",
                 std::string("parallel.tensor.sequence_parallel=") + truth(at.sequence_parallel),
                 std::string("parallel.pipeline.scatter_gather=") + truth(at.scatter_gather),
                 "parallel.pipeline.schedule=" + at.schedule,
                 "parallel.data.stage=" + std::to_string(at.zero)};
  if (at.zero >= 2)
    options.set.push_back(std::string("parallel.data.reduce=") + (at.reduce_per_step ? "step" : "micro_batch"));
  if (at.zero == 3) options.set.push_back("parallel.data.keep_gathered=0");
  return options;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const TrafficCase& at) {
  out << "tensor " << at.tensor << (at.sequence_parallel ? " sp" : "") << " pipeline " << at.pipeline;
  if (at.pipeline > 1) out << " " << at.schedule << (at.scatter_gather ? " scatter_gather" : "");
  out << " data " << at.data << " zero " << at.zero << (at.reduce_per_step ? " per step" : "");
  return out << " m " << at.micro_batches << " recompute " << kRecompute[static_cast<int>(at.recompute)] << " "
             << at.optimizer;
}

TrafficFacts traffic_facts(SessionRig& rig, const TrafficCase& at) {
  TrafficFacts facts;
  facts.model = rig.facts().model;
  facts.grid = rig.facts().grid;
  facts.micro = rig.train_walk().samples;
  facts.micro_batches = at.micro_batches;
  facts.parts.assign(rig.executor().parts().begin(), rig.executor().parts().end());
  facts.recompute = at.recompute;
  facts.sequence_parallel = at.sequence_parallel;
  facts.scatter_gather = at.scatter_gather;
  facts.zero = at.zero;
  facts.reduce_per_step = at.reduce_per_step;
  facts.working_bytes = static_cast<std::int64_t>(size_of(rig.facts().precision.working));
  facts.reduced_bytes = static_cast<std::int64_t>(size_of(rig.facts().precision.message));
  return facts;
}

std::vector<TrafficLine> count_step(Communicator& world, const TrafficCase& at) {
  SessionRig rig(world, rig_options(at));
  Optimizer& optimizer = rig.session().optimizer();
  const Walk walk = rig.train_walk();
  rig.bind(std::span(&walk, 1), optimizer);  // weights of zero count as well
  const Grid& grid = rig.facts().grid;
  const std::int64_t samples = walk.samples * walk.micro_batches * grid.data;
  for (const std::int64_t step : {0, 1}) {
    rig.counters().reset();
    HashedBatches batches(rig.facts().model, walk.samples, samples, grid.data, grid.data_rank, step);
    rig.executor().train_step(walk, batches, {1e-3, 1.0, step + 1}, optimizer);
  }
  const Traffic formula = expected_traffic(traffic_facts(rig, at));
  const CommCounters& counters = rig.counters();
  return {{"tensor", counted_bytes(counters, "tensor"), formula.tensor_total()},
          {"pipeline", counted_bytes(counters, "pipeline"), formula.pipeline + formula.tied},
          {"data", counted_bytes(counters, "data"), formula.data_gradients + formula.data_weights},
          {"world", counted_bytes(counters, "world"), formula.verdict}};
}

std::vector<TrafficCase> traffic_cases() {
  std::vector<TrafficCase> list;
  const auto add = [&](auto&& change) {
    for (const int m : {1, 2, 5}) {
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        TrafficCase at;
        at.optimizer = "optim_bf16";
        at.micro_batches = m;
        at.recompute = recompute;
        change(at);
        list.push_back(at);
      }
    }
  };
  add([](TrafficCase& at) { at.tensor = 2; });
  add([](TrafficCase& at) { at.tensor = 4, at.sequence_parallel = true; });
  add([](TrafficCase& at) { at.pipeline = 4; });
  add([](TrafficCase& at) { at.pipeline = 2, at.schedule = "interleaved"; });
  for (const int zero : {0, 1, 2, 3}) {
    add([&](TrafficCase& at) { at.data = 4, at.zero = zero; });
  }
  add([](TrafficCase& at) { at.data = 4, at.zero = 2, at.reduce_per_step = true; });
  add([](TrafficCase& at) { at.tensor = at.pipeline = 2, at.scatter_gather = true; });
  for (const int zero : {0, 1, 2, 3}) {
    add([&](TrafficCase& at) {
      at.tensor = at.pipeline = at.data = 2;
      at.schedule = "zero_bubble";
      at.sequence_parallel = true;
      at.zero = zero;
      at.optimizer = "optim_fp32";
    });
  }
  return list;
}

}  // namespace espalier::testing_support
