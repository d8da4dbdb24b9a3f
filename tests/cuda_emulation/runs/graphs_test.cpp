// A few steps with CUDA graphs, to the bit those without.
#include <gmock/gmock.h>

#include "cuda_emulation/runs/graphs.hpp"

namespace espalier::testing_support {
namespace {

using ::testing::HasSubstr;

TEST(EmulatedCudaGraphs, AFewStepsAreThoseWithout) {
  expect_same_with_graphs("cuda_graphs", 5, 2, 150, optimizer("optim_bf16"));
}

TEST(EmulatedCudaGraphs, AFaultWithinAGraphEndsTheRun) {
  TrainerJob job = quickstart_job("cuda_graphs_fault", 2, optimizer("optim_fp32"));
  on_cuda(job, 0).set("backend.graphs", "true").environment("ESPALIER_FAKE_CUDA_FAULT=matmul");
  EXPECT_THAT(job.expect(6).output, HasSubstr("unspecified launch failure"));
  job.set("backend.synchronous", "true");
  EXPECT_THAT(job.expect(2).output, HasSubstr("backend.graphs and backend.synchronous are both true"));
}

}  // namespace
}  // namespace espalier::testing_support
