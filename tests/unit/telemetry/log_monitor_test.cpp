#include "telemetry/log_monitor.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <regex>
#include <string>

#include "telemetry/metric_names.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;

double number_after(const std::string& line, const std::string& name) {
  std::smatch found;
  return std::regex_search(line, found, std::regex(name + ": +([0-9.Ee+-]+)")) ? std::stod(found[1].str()) : -1;
}

// Case O08: a line stands for its whole interval, also when its last step was slow and the batch grew on the way.
TEST(LogMonitorSpeed, TokensPerSecondTimesStepTimeIsTheTokensOfAStep) {
  const fs::path path = fs::path(testing::TempDir()) / ("log_" + std::to_string(::getpid()));
  fs::remove(path);
  constexpr double kSeq = 100;
  {
    LogMonitor::Settings settings;
    settings.interval = 3;
    settings.total_steps = 100;
    settings.console = false;
    LogMonitor monitor(path, settings);
    const std::array<double, 6> seconds = {0.5, 0.5, 5.0, 0.25, 0.5, 1.0};
    const std::array<double, 6> batch = {8, 8, 8, 8, 16, 24};
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      const std::array metrics = {Metric{metric::kStepTime, seconds[i]}, Metric{metric::kGlobalBatch, batch[i]},
                                  Metric{metric::kTokensPerSecond, batch[i] * kSeq / seconds[i]},
                                  Metric{metric::kSamplesPerSecond, batch[i] / seconds[i]},
                                  Metric{metric::kTflops, 0.75 * batch[i] / seconds[i]}};
      monitor.metrics({static_cast<std::int64_t>(i) + 1, 0, 0}, metrics);
    }
  }
  std::ifstream in(path);
  std::string line;
  for (const double samples : {8.0, 16.0}) {
    ASSERT_TRUE(std::getline(in, line));
    const double step = number_after(line, "elapsed time per iteration \\(s\\)");
    EXPECT_GT(step, 0.4) << line;
    EXPECT_NEAR(number_after(line, "tokens per second") * step, samples * kSeq, 0.01 * samples * kSeq) << line;
    EXPECT_NEAR(number_after(line, "samples per second") * step, samples, 0.01 * samples) << line;
    EXPECT_NEAR(number_after(line, "TFLOPs") * step, 0.75 * samples, 0.0075 * samples) << line;
  }
  fs::remove(path);
}

}  // namespace
}  // namespace espalier::app
