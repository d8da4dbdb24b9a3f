// Between the end of step 2 and the end of step 6 our own libraries make no heap call on the training thread, logging and metrics included.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "config/open.hpp"
#include "espalier/communicator.hpp"
#include "heap_watch.hpp"
#include "session/session.hpp"
#include "train/phase.hpp"
#include "train/trainer.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;

/// Arms the watch after step 2 and disarms it after step 6, from inside the trainer's own records.
class StepWatch final : public Monitor {
 public:
  void metrics(const Progress& progress, std::span<const Metric>) override {
    if (progress.step == 2) heap_watch::arm();
    if (progress.step == 6) heap_watch::disarm();
  }
  void event(const Progress&, std::string_view, std::string_view) override {}
  void flush() override {}
  void resume(const Progress&) override {}
};

std::string recipe_text(const std::string& run_dir, const std::string& backend, const std::string& optimizer, int ranks, const std::string& split) {
  std::string text = "[run]\ndir = \"" + run_dir + "\"\n";
  text += "[model]\nlayers = 2\nhidden = 32\nheads = 4\nvocab_size = 259\nseq_length = 24\nattention_dropout = 0.1\nhidden_dropout = 0.1\n";
  text += "[train]\ntrain_samples = 64\nglobal_batch_size = 8\nmicro_batch_size = 2\nlr = 1e-3\nlr_decay_style = \"constant\"\nthreads = 1\n";
  text += "[optimizer]\nplugin = \"" + optimizer + "\"\n[backend]\nplugin = \"" + backend + "\"\n";
  text += "[data]\nplugin = \"synthetic\"\n[tokenizer]\nplugin = \"bytes\"\n[plugins]\nsearch_path = [\"" ESPALIER_PLUGIN_DIR "\"]\n";
  const std::string stage = split == "stage2" ? "2" : split == "stage3" ? "3" : "1";
  if (ranks > 1) text += "[parallel.data]\nplugin = \"parallel_zero\"\nstage = " + stage + "\n";
  if (split == "tensor") text += "[parallel.tensor]\nplugin = \"parallel_tensor\"\nsequence_parallel = true\nsize = " + std::to_string(ranks) + "\n";
  if (split == "pipeline") text += "[parallel.pipeline]\nplugin = \"parallel_pipeline\"\nschedule = \"zero_bubble\"\nsize = " + std::to_string(ranks) + "\n";
  return text;
}

struct Case {
  const char* backend;
  const char* optimizer;
  const char* split = "data";  ///< what several ranks share: batches (also "stage2", "stage3"), layers ("tensor"), or the model ("pipeline")
};

class HeapInSteps : public testing::TestWithParam<Case> {};

TEST_P(HeapInSteps, OurLibrariesMakeNone) {
  const auto [backend, optimizer, split] = GetParam();
  const auto world = make_world_communicator();
  const fs::path folder = fs::path(testing::TempDir()) / ("heap_" + std::to_string(world->size()) + "_" + backend + "_" + optimizer + "_" + split);
  const fs::path recipe = folder.string() + ".toml";
  phase(*world, [&] {
    if (world->rank() != 0) return;
    fs::remove_all(folder);
    std::ofstream(recipe) << recipe_text(folder.string(), backend, optimizer, world->size(), world->size() > 1 ? split : "data");
  });
  RecipeRequest request;
  request.file = recipe.string();
  OpenRecipe opened = open_recipe(request, *world);
  Session session(*world, std::move(opened.recipe), *opened.plugins, {});
  Trainer trainer(session);
  trainer.add_monitor(std::make_unique<StepWatch>());
  EXPECT_EQ(trainer.run(), ExitCode::ok);

  const auto own = heap_watch::own_calls();
  for (const std::string& line : own) ADD_FAILURE() << line;
  for (const std::string& library : heap_watch::other_libraries()) std::cout << "heap calls also from " << library << "\n";
}

INSTANTIATE_TEST_SUITE_P(Providers, HeapInSteps,
                         testing::Values(Case{"reference", "optim_fp32"}, Case{"kernels_fused", "optim_bf16"},
                                         Case{"kernels_fused", "optim_bf16", "tensor"},
                                         Case{"kernels_fused", "optim_bf16", "pipeline"},
                                         Case{"kernels_fused", "optim_bf16", "stage2"},
                                         Case{"kernels_fused", "optim_bf16", "stage3"}),
                         [](const auto& test) { return std::string(test.param.backend) + "_" + test.param.split; });

// The watch itself: it must see what it is meant to see.
TEST(HeapWatch, SeesAnAllocationOfOurOwn) {
  heap_watch::arm();
  auto* const number = new int(3);
  std::string text(100, 'x');
  heap_watch::disarm();
  EXPECT_EQ(text.size(), 100u);
  delete number;
  EXPECT_GE(heap_watch::own_calls().size(), 2u);
}

}  // namespace
}  // namespace espalier::app
