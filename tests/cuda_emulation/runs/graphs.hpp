#pragma once

#include <gmock/gmock.h>

#include <string>

#include "runs.hpp"

namespace espalier::testing_support {

/// What the run says of its graphs, "" when nothing.
inline std::string said_of_graphs(const std::string& output) {
  const std::size_t at = output.find("graphs: ");
  return at == std::string::npos ? "" : output.substr(at, output.find('\n', at) - at);
}

/// With CUDA graphs, in `orders` orders of the device's work, the same bits as without. @param graphs  whether there is
/// anything that repeats.
inline void expect_same_with_graphs(const std::string& name, int steps, int orders, const Change& change,
                                    bool graphs = true) {
  TrainerJob plain = quickstart_job(name + "_plain", steps, change);
  EXPECT_EQ(said_of_graphs(on_cuda(plain, 0).expect(0, 300).output), "");
  for (int seed = 0; seed < orders; ++seed) {
    const std::string which = name + ", seed " + std::to_string(seed);
    TrainerJob job = quickstart_job(name + "_graphs_" + std::to_string(seed), steps, change);
    on_cuda(job, seed).set("backend.graphs", "true");
    const std::string said = said_of_graphs(job.expect(0, 300).output);
    EXPECT_EQ(said != "", graphs) << which << ": " << said;
    EXPECT_EQ(difference_of_steps(plain.steps(), job.steps(), 1, steps), "") << which;
    EXPECT_EQ(difference_of_checkpoints(plain.checkpoint(steps), job.checkpoint(steps)), "") << which;
    ::testing::Test::RecordProperty(which, said);
  }
}

}  // namespace espalier::testing_support
