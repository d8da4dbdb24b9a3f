// Seconds that ranks wait for sums over the data group, with overlap and without.
//   mpiexec -n 2 build/bench/overlap [rounds]
// Ends with 1 unless overlap takes at least half of the waiting at every stage.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "support/hashed_batches.hpp"
#include "support/session_rig.hpp"

namespace {

using namespace espalier;
using namespace espalier::testing_support;

constexpr int kSteps = 3;
constexpr int kMicroBatches = 2;

/// Of one rank, a step; the mean over the ranks in the end.
struct Seconds {
  double sums = 0, gathers = 0, step = 0;
};

Seconds run(Communicator& world, int stage, bool overlap) {
  RigOptions options;
  options.micro = 2;
  options.micro_batches = kMicroBatches;
  options.set = {"model.layers=8",
                 "model.hidden=256",
                 "model.heads=4",
                 "model.ffn=1024",
                 "model.vocab_size=1024",
                 "model.seq_length=128",
                 "optimizer.plugin=optim_bf16",
                 "backend.plugin=kernels_fused",
                 "parallel.data.stage=" + std::to_string(stage),
                 std::string("parallel.data.overlap=") + (overlap ? "true" : "false")};
  SessionRig rig(world, options);
  Optimizer& optimizer = rig.session().optimizer();
  const app::Walk walk = rig.train_walk();
  rig.bind(std::span(&walk, 1), optimizer, 0.02);
  const Grid& grid = rig.facts().grid;
  const auto step = [&](int number) {
    HashedBatches batches(rig.facts().model, walk.samples, walk.samples * kMicroBatches * grid.data, grid.data,
                          grid.data_rank, number);
    rig.executor().train_step(walk, batches, {1e-3, 1.0, number + 1}, optimizer);
  };
  step(0);
  rig.counters().reset();
  const auto begin = std::chrono::steady_clock::now();
  for (int number = 1; number <= kSteps; ++number) step(number);
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
  Seconds mean;
  mean.step = all.count() / kSteps;
  for (const app::CommTotal& row : rig.counters().totals()) {
    if (row.group != "data") continue;
    (row.verb == Verb::all_gather ? mean.gathers : mean.sums) += row.wait_seconds / kSteps;
  }
  double numbers[] = {mean.sums / world.size(), mean.gathers / world.size(), mean.step / world.size()};
  const View view = View::vector(numbers, 3, DType::f64);
  world.run({Verb::all_reduce, view, view, Reduce::sum_rank_order, 0, 0}, rig.stream());
  return {numbers[0], numbers[1], numbers[2]};
}

}  // namespace

int main(int arguments, char** values) {
  const int rounds = arguments > 1 ? std::max(1, std::atoi(values[1])) : 3;
  const auto world = make_world_communicator();
  const bool prints = world->rank() == 0;
  if (prints) {
    std::printf("| stage | sums, off | sums, on | ratio | weights, off | weights, on | step, off | step, on |\n");
    std::printf("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  }
  bool halved = true;
  for (const int stage : {0, 1, 2, 3}) {
    Seconds mean[2];
    for (int round = 0; round < rounds; ++round) {
      for (const bool overlap : {false, true}) {  // by turns: other programs disturb both alike
        const Seconds now = run(*world, stage, overlap);
        Seconds& sum = mean[overlap ? 1 : 0];
        sum.sums += now.sums / rounds;
        sum.gathers += now.gathers / rounds;
        sum.step += now.step / rounds;
      }
    }
    halved = halved && mean[1].sums <= mean[0].sums / 2;
    if (!prints) continue;
    std::printf("| %d | %.4f s | %.4f s | %.2f | %.4f s | %.4f s | %.3f s | %.3f s |\n", stage, mean[0].sums,
                mean[1].sums, mean[1].sums / mean[0].sums, mean[0].gathers, mean[1].gathers, mean[0].step,
                mean[1].step);
    std::fflush(stdout);
  }
  return halved ? 0 : 1;
}
