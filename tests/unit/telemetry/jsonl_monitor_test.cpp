#include "telemetry/jsonl_monitor.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;

class Jsonl : public testing::Test {
 protected:
  Jsonl() : path_(fs::path(testing::TempDir()) / ("metrics_" + std::to_string(::getpid()) + ".jsonl")) { fs::remove(path_); }
  ~Jsonl() override { fs::remove(path_); }

  std::vector<nlohmann::json> records() const {
    std::vector<nlohmann::json> all;
    std::ifstream in(path_);
    for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> all;
    for (const auto& record : records()) all.push_back(record["step"]);
    return all;
  }
  static void write(JsonlMonitor& monitor, std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step) {
      const Metric metrics[] = {{"lm loss", 1.0 / static_cast<double>(step)}, {"grad norm", 2.5}};
      monitor.metrics({step, step * 8, step * 800}, metrics);
    }
  }

  fs::path path_;
};

TEST_F(Jsonl, WritesOneObjectALine) {
  JsonlMonitor monitor(path_);
  write(monitor, 1, 3);
  monitor.event({3, 24, 2400}, "checkpoint", "saved to \"x\"\n");
  const auto all = records();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[2]["kind"], "step");
  EXPECT_EQ(all[2]["samples"], 24);
  EXPECT_NEAR(all[2]["lm loss"].get<double>(), 1.0 / 3, 1e-9);
  EXPECT_EQ(all[3]["text"], "saved to \"x\"\n");
}

// A file of the user's, named by mistake, is not cut to the records of a run.
TEST_F(Jsonl, LeavesAFileThatHoldsSomethingElse) {
  std::ofstream(path_) << "[model]\nlayers = 2\n";
  EXPECT_THROW(JsonlMonitor{path_}, IoError);
  EXPECT_EQ(fs::file_size(path_), 19u);
  std::ofstream(path_, std::ios::trunc) << "{\"ki";  // a run that was killed in its first line
  JsonlMonitor monitor(path_);
  monitor.resume({});
  EXPECT_EQ(fs::file_size(path_), 0u);
}

// Whoever names a pipe or a device gets the records, and nothing is read from it.
TEST_F(Jsonl, WritesToWhatIsNoRegularFile) {
  JsonlMonitor monitor("/dev/zero");
  monitor.resume({});
  write(monitor, 1, 2);
}

TEST_F(Jsonl, NumbersThatJsonCannotHoldAreStrings) {
  JsonlMonitor monitor(path_);
  const Metric metrics[] = {{"lm loss", std::nan("")}, {"grad norm", std::numeric_limits<double>::infinity()}};
  monitor.metrics({1, 1, 1}, metrics);
  EXPECT_EQ(records()[0]["lm loss"], "nan");
  EXPECT_EQ(records()[0]["grad norm"], "inf");
}

TEST_F(Jsonl, AResumedRunHoldsEachStepOnce) {
  {
    JsonlMonitor monitor(path_);
    write(monitor, 1, 7);
  }
  std::ofstream(path_, std::ios::app) << R"({"kind":"step","step":8,"lm l)";  // killed in the middle of a write
  JsonlMonitor monitor(path_);
  monitor.resume({5, 40, 4000});
  write(monitor, 6, 9);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(Jsonl, ANewRunDropsOldRecords) {
  {
    JsonlMonitor monitor(path_);
    write(monitor, 1, 4);
  }
  JsonlMonitor monitor(path_);
  monitor.resume({0, 0, 0});
  write(monitor, 1, 2);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2}));
}

TEST_F(Jsonl, AFolderThatIsNotThereIsNamed) {
  try {
    JsonlMonitor monitor("/nowhere/at/all/metrics.jsonl");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/at/all/metrics.jsonl"), std::string::npos);
  }
}

}  // namespace
}  // namespace espalier::app
