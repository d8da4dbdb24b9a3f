// Checkpoints of one pipeline, read by another: the run goes on as if nothing had happened.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "config/open.hpp"
#include "session/session.hpp"
#include "support/mpi_test.hpp"
#include "telemetry/log.hpp"
#include "train/phase.hpp"
#include "train/trainer.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;

class HostStream final : public Stream {};

class Losses final : public Monitor {
 public:
  explicit Losses(std::map<std::int64_t, std::pair<double, double>>& steps) : steps_(steps) {}
  void metrics(const Progress& now, std::span<const Metric> metrics) override {
    for (const Metric& metric : metrics) {
      if (metric.name == "lm loss") steps_[now.step].first = metric.value;
      if (metric.name == "grad norm") steps_[now.step].second = metric.value;
    }
  }
  void event(const Progress&, std::string_view, std::string_view) override {}
  void flush() override {}
  void resume(const Progress&) override {}

 private:
  std::map<std::int64_t, std::pair<double, double>>& steps_;
};

constexpr const char* kRecipe = R"([model]
layers = 4
hidden = 32
heads = 4
vocab_size = 263
seq_length = 16
attention_dropout = 0.1
hidden_dropout = 0.1
[train]
train_iters = 6
global_batch_size = 8
micro_batch_size = 2
lr = 1e-2
lr_decay_style = "constant"
threads = 1
[data]
plugin = "synthetic"
[parallel.data]
plugin = "parallel_zero"
[parallel.pipeline]
plugin = "parallel_pipeline"
[log]
level = "error"
)";

class Resume : public testing::TestWithParam<const char*> {
 protected:
  Resume() : world_(make_world_communicator()) {
    folder_ = fs::path(testing::TempDir()) / ("pipeline_resume_" + std::to_string(world_->size()) + "_" + GetParam());
    phase(*world_, [&] {
      if (world_->rank() != 0) return;
      fs::remove_all(folder_);
      fs::create_directories(folder_);
      std::ofstream(folder_ / "recipe.toml") << kRecipe;
    });
  }

  /// Trains in a folder on the first `stages` ranks until a step that is a multiple of `exit`, or the end.
  void train(const std::string& run, bool tied, int stages, const std::string& schedule, int exit) {
    const auto part = world_->split(world_->rank() < stages ? 0 : -1, world_->rank(), "part");
    if (part != nullptr) {
      RecipeRequest request;
      request.file = (folder_ / "recipe.toml").string();
      request.overrides = {"plugins.search_path=[\"" ESPALIER_PLUGIN_DIR "\"]",
                           "run.dir=" + (folder_ / run).string(),
                           "parallel.pipeline.size=" + std::to_string(stages),
                           "parallel.pipeline.schedule=" + schedule,
                           std::string("model.tied_head=") + (tied ? "true" : "false"),
                           std::string("optimizer.plugin=") + GetParam(),
                           "train.exit_interval=" + std::to_string(exit)};
      OpenRecipe opened = open_recipe(request, *part);
      start_log(part->rank(), part->size(), LogLevel::error);
      Session session(*part, std::move(opened.recipe), *opened.plugins, {});
      Trainer trainer(session);
      trainer.add_monitor(std::make_unique<Losses>(steps_[run]));
      trainer.run();
    }
    HostStream stream;
    world_->run({}, stream);
  }

  std::unique_ptr<Communicator> world_;
  fs::path folder_;
  std::map<std::string, std::map<std::int64_t, std::pair<double, double>>> steps_;  // run → step → loss, norm
};

TEST_P(Resume, AnyNumberOfStagesGoesOnToTheBit) {
  const int all = world_->size();
  // Untied: also from and to one stage.
  train("straight", false, 1, "1f1b", 0);
  train("changing", false, 2, "zero_bubble", 2);
  train("changing", false, 1, "1f1b", 4);
  train("changing", false, all, "gpipe", 0);
  train("tied", true, 2, "1f1b", 0);
  train("tied_changing", true, all, "zero_bubble", 3);
  train("tied_changing", true, 2, "interleaved", 0);
  if (world_->rank() == 0) {  // who takes part in all of them
    EXPECT_EQ(steps_["straight"], steps_["changing"]);
    EXPECT_EQ(steps_["tied"], steps_["tied_changing"]);
    EXPECT_EQ(steps_["straight"].size(), 6u);
    EXPECT_EQ(steps_["tied"].size(), 6u);
  }
  phase(*world_, [&] {
    if (world_->rank() == 0) fs::remove_all(folder_);
  });
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Resume, testing::Values("optim_fp32", "optim_bf16"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace espalier::app
