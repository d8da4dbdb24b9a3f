#pragma once

#include <algorithm>
#include <regex>
#include <string>

#include "cuda_emulation/runs/runs.hpp"

namespace espalier::testing_support {

/// What the run said last of its graphs.
struct Said {
  int graphs = 0;
  int pieces = 0;  ///< of work, in the graphs
  int launches = 0;
};

inline Said said_of_graphs(const std::string& output) {
  static const std::regex line("graphs: ([0-9]+) CUDA graphs of ([0-9]+) launches.*so far launched ([0-9]+) times");
  Said said;
  for (std::sregex_iterator at(output.begin(), output.end(), line), end; at != end; ++at) {
    said = {std::stoi((*at)[1]), std::stoi((*at)[2]), std::stoi((*at)[3])};
  }
  return said;
}

/// With CUDA graphs, in `orders` orders of the device's work, the same bits as without.
/// @param pieces  least number of pieces of work that the graphs hold together; negative: at most.
inline void expect_same_with_graphs(const std::string& name, int steps, int orders, int pieces, const Change& change) {
  TrainerJob plain = quickstart_job(name + "_plain", steps, change);
  EXPECT_EQ(said_of_graphs(on_cuda(plain, 0).expect(0, 300).output).graphs, 0);
  for (int seed = 0; seed < orders; ++seed) {
    const std::string which = name + ", seed " + std::to_string(seed);
    TrainerJob job = quickstart_job(name + "_graphs_" + std::to_string(seed), steps, change);
    on_cuda(job, seed).set("backend.graphs", "true");
    const Said said = said_of_graphs(job.expect(0, 300).output);
    ::testing::Test::RecordProperty(which, std::to_string(said.graphs) + " graphs, " + std::to_string(said.pieces) +
                                               " pieces, " + std::to_string(said.launches) + " launches");
    EXPECT_GE(pieces < 0 ? -said.pieces : said.pieces, pieces) << which;
    expect_equal_runs(plain, job, steps, which);
  }
}

}  // namespace espalier::testing_support
