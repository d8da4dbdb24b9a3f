// Every byte of device memory is there before the first step.
#include <map>

#include "emulated_steps.hpp"

namespace espalier::testing_support {
namespace {

/// Now and at most: what grows and is given back has grown.
std::map<std::string, std::pair<std::size_t, std::size_t>> memory_of(const Device& device) {
  std::map<std::string, std::pair<std::size_t, std::size_t>> all;
  for (const MemoryUse& use : device.memory_use()) all[use.purpose] = {use.bytes, use.peak};
  return all;
}

void expect_nothing_grows(RunOptions options, const std::string& what) {
  const auto world = make_world_communicator();
  PipelineRun run(*world, on_fake_gpus(std::move(options)));
  const Device& device = run.session().backend().device();
  const auto bound = memory_of(device);
  EXPECT_GT(bound.at("workspace").first, 0u) << what;
  run.step();
  EXPECT_EQ(memory_of(device), bound) << what;
}

RunOptions with(const std::string& key) {
  RunOptions options;
  options.micro_batches = 2;
  options.more = {key};
  return options;
}

TEST(EmulatedMemory, NothingGrowsInTheFirstStep) {
  if (world_size() != 1) GTEST_SKIP() << "one rank";
  for (const char* key : {"optimizer.plugin=optim_bf16", "optimizer.plugin=optim_fp16", "optimizer.plugin=optim_fp32",
                          "train.recompute=full"}) {
    expect_nothing_grows(with(key), key);
  }
}

TEST(EmulatedMemory, NothingGrowsInAnyLayout) {
  if (world_size() != 2) GTEST_SKIP() << "two ranks";
  RunOptions tensor = with("parallel.tensor.sequence_parallel=true");
  tensor.tensor = 2;
  expect_nothing_grows(tensor, "tensor");
  RunOptions pipeline = with("optimizer.plugin=optim_bf16");
  pipeline.pipeline = 2;
  pipeline.schedule = "zero_bubble";
  expect_nothing_grows(pipeline, "pipeline");
  RunOptions zero = with("parallel.data.stage=3");
  zero.data = 2;
  expect_nothing_grows(zero, "zero");
}

}  // namespace
}  // namespace espalier::testing_support
