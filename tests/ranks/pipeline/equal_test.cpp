// What the number of stages and the schedule may not change.
#include <gtest/gtest.h>

#include <cmath>

#include "ranks/pipeline/pipeline_run.hpp"
#include "support/mpi_test.hpp"

namespace espalier {
namespace {

using namespace testing_support;

constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved", "zero_bubble"};

/// On rank 0, which takes part in all.
void expect_same_bits(const RunResult& a, const RunResult& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_EQ(a.valid, b.valid) << what;
  ASSERT_EQ(a.masters.size(), b.masters.size());
  for (const auto& [name, values] : a.masters) {
    if (values != b.masters.at(name)) ADD_FAILURE() << what << ": " << name << " differs";
  }
}

void expect_near(const RunResult& a, const RunResult& b, double relative, const std::string& what) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], relative * a.losses[i]) << what << " step " << i;
    EXPECT_NEAR(a.norms[i], b.norms[i], relative * a.norms[i]) << what << " step " << i;
  }
  EXPECT_NEAR(a.valid, b.valid, relative * a.valid) << what;
}

class Equal : public testing::Test {
 protected:
  Equal() : world_(make_world_communicator()) {}
  RunResult run(const RunOptions& options, int steps) { return run_steps(*world_, options, steps); }
  bool compares() const { return world_->rank() == 0; }
  int ranks() const { return world_->size(); }

  std::unique_ptr<Communicator> world_;
};

RunOptions stages(int pipeline, const std::string& schedule = "1f1b") {
  RunOptions options;
  options.pipeline = pipeline;
  options.schedule = schedule;
  return options;
}

// Case X15 among them: fewer micro-batches than stages, as many, more.
TEST_F(Equal, AllSchedulesToTheBit) {
  for (const int m : ranks() == 4 ? std::vector<int>{1, 2, 3, 4, 5, 8} : std::vector<int>{1, 3, 5}) {
    RunOptions options = stages(ranks());
    options.micro_batches = m;
    const RunResult expected = run(options, 2);
    for (const char* schedule : kSchedules) {
      if (schedule == options.schedule) continue;
      RunOptions other = options;
      other.schedule = schedule;
      const RunResult result = run(other, 2);
      if (compares()) expect_same_bits(expected, result, std::string(schedule) + " m " + std::to_string(m));
    }
  }
}

TEST_F(Equal, StagesOfAnUntiedModelToTheBit) {
  RunOptions one = stages(1);
  one.tied = false;
  const RunResult expected = run(one, 4);
  for (int pipeline = 2; pipeline <= ranks(); ++pipeline) {
    for (const char* schedule : {"1f1b", "zero_bubble"}) {
      RunOptions options = stages(pipeline, schedule);
      options.tied = false;
      const RunResult result = run(options, 4);
      if (compares()) expect_same_bits(expected, result, std::to_string(pipeline) + " stages, " + schedule);
    }
  }
}

// Case X11: as one stage, which adds the head's and the embedding's gradients in another order.
TEST_F(Equal, StagesOfATiedModel) {
  const RunResult one = run(stages(1), 10);
  const RunResult two = run(stages(2), 10);
  if (compares()) {
    expect_near(one, two, 1e-6, "2 stages");
    EXPECT_LT(two.losses.back(), two.losses.front());
  }
  for (int pipeline = 3; pipeline <= ranks(); ++pipeline) {
    const RunResult more = run(stages(pipeline, "interleaved"), 10);
    if (compares()) expect_same_bits(two, more, std::to_string(pipeline) + " stages");
  }
}

TEST_F(Equal, EveryCutToTheBit) {
  const RunResult expected = run(stages(2), 2);
  for (const char* cut :
       {"parallel.pipeline.cut=slots", "parallel.pipeline.cut=parameters", "parallel.pipeline.cut=cost",
        "parallel.pipeline.parts=[1, 9]", "parallel.pipeline.parts=[9, 1]"}) {
    RunOptions options = stages(2, "zero_bubble");
    options.more = {cut};
    const RunResult result = run(options, 2);
    if (compares()) expect_same_bits(expected, result, cut);
  }
}

TEST_F(Equal, RecomputationToTheBitWithEverySchedule) {
  const RunResult expected = run(stages(2), 2);
  for (const char* schedule : kSchedules) {
    for (const char* recompute : {"selective", "full"}) {
      RunOptions options = stages(2, schedule);
      options.more = {std::string("train.recompute=") + recompute};
      const RunResult result = run(options, 2);
      if (compares()) expect_same_bits(expected, result, std::string(schedule) + " " + recompute);
    }
  }
}

TEST_F(Equal, WithDataParallelism) {
  if (ranks() < 4) return;
  RunOptions one = stages(1);
  one.micro_batches = 6;
  const RunResult expected = run(one, 6);
  RunOptions both = stages(2, "zero_bubble");
  both.data = 2;
  both.micro_batches = 3;
  both.more = {"parallel.data.stage=0"};
  const RunResult zero = run(both, 6);
  if (compares()) expect_near(expected, zero, 1e-5, "pipeline 2 x data 2");
  both.more = {"parallel.data.stage=1"};
  both.schedule = "1f1b";
  const RunResult sharded = run(both, 6);
  if (compares()) expect_same_bits(zero, sharded, "ZeRO 0 and 1");
}

TEST_F(Equal, WithTensorParallelism) {
  if (ranks() < 4) return;
  const RunResult expected = run(stages(1), 6);
  for (const char* sequence : {"false", "true"}) {
    RunOptions both = stages(2, "zero_bubble");
    both.tensor = 2;
    both.more = {std::string("parallel.tensor.sequence_parallel=") + sequence};
    const RunResult result = run(both, 6);
    if (compares())
      expect_near(expected, result, 1e-5, std::string("pipeline 2 x tensor 2, sequence parallel ") + sequence);
    both.more.push_back("parallel.pipeline.scatter_gather=true");
    both.schedule = "1f1b";
    const RunResult scattered = run(both, 6);
    if (compares()) expect_same_bits(result, scattered, "scatter_gather");
  }
}

TEST_F(Equal, WithFusedKernelsInBf16) {
  const std::vector<std::string> more = {"backend.plugin=kernels_fused", "optimizer.plugin=optim_bf16"};
  RunOptions options = stages(2);
  options.more = more;
  const RunResult expected = run(options, 3);
  for (const char* schedule : {"interleaved", "zero_bubble"}) {
    options.schedule = schedule;
    options.pipeline = ranks();
    const RunResult result = run(options, 3);
    if (compares()) expect_same_bits(expected, result, schedule);
  }
  options.pipeline = 1;
  const RunResult one = run(options, 3);
  if (compares()) expect_near(expected, one, 1e-3, "one stage");
}

}  // namespace
}  // namespace espalier
