// The recipes of configs/, checked with whatever options they give their plugins: which plugins are built does not
// matter here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <list>
#include <string>
#include <vector>

#include "config/load.hpp"

namespace espalier::app {
namespace {

class AnyOptions {
 public:
  std::span<const OptionSpec> operator()(const PluginChoice& choice) {
    std::vector<OptionSpec>& specs = specs_.emplace_back();
    for (const auto& [key, value] : choice.options.values) {
      specs.push_back({names_.emplace_back(key).c_str(), type_of(value), "", ""});
    }
    return specs;
  }

 private:
  static OptionType type_of(const ConfigValue& value) {
    if (const auto* array = std::get_if<ConfigValue::Array>(&value.data)) {
      const bool strings = !array->empty() && std::holds_alternative<std::string>(array->front().data);
      const bool tables = !array->empty() && std::holds_alternative<std::shared_ptr<ConfigTable>>(array->front().data);
      return tables ? OptionType::tables : strings ? OptionType::strings : OptionType::numbers;
    }
    constexpr OptionType kTypes[] = {OptionType::boolean, OptionType::integer, OptionType::number, OptionType::string};
    return kTypes[value.data.index()];
  }

  std::list<std::string> names_;
  std::list<std::vector<OptionSpec>> specs_;
};

Recipe load(const std::string& name, int world) {
  AnyOptions any;
  return load_recipe({std::string(ESPALIER_SOURCE_DIR) + "/configs/" + name, {}, "", world},
                     [&](const PluginChoice& choice, const std::vector<std::string>&) { return any(choice); });
}

TEST(Configs, Bloom176b) {
  const Recipe recipe = load("bloom-176b.toml", 384);
  EXPECT_EQ(count_parameters(recipe.model), 176'247'271'424);
  EXPECT_EQ(recipe.grid.data, 8);
  EXPECT_EQ(recipe.train.train_steps, 115'311);
  const BatchSchedule batches(recipe.train.batch, recipe.grid.data);
  EXPECT_EQ(batches.at(batches.samples_after(7'572)), (StepBatch{784, 2, 49}));
  EXPECT_NEAR(RateSchedule(recipe.train.rate).rate(71'455'664), 4.475e-5, 0.5e-8);
  EXPECT_EQ(load("bloom-176b.toml", 192).grid.data, 4) << "the second half of the run, on 24 nodes";
}

// The same order of work as the true run's: every part it has is there, at other sizes.
TEST(Configs, TheTwinHasTheTrueRunsParts) {
  const Recipe twin = load("bloom-twin.toml", 12), real = load("bloom-176b.toml", 384);
  EXPECT_EQ((std::vector<int>{twin.grid.tensor, twin.grid.pipeline, twin.grid.data}), (std::vector<int>{2, 3, 2}));
  EXPECT_EQ(twin.model.layers + 2, 3 * twin.grid.pipeline) << "equal slots";
  EXPECT_EQ((real.model.layers + 2) % real.grid.pipeline, 0);
  const auto parts = [](const Recipe& recipe) {
    const auto option = [](const PluginChoice& choice, const char* key) { return choice.options.find(key)->to_text(); };
    return std::vector<std::string>{recipe.optimizer.plugin,
                                    recipe.tensor.choice.plugin,
                                    recipe.pipeline.choice.plugin,
                                    option(recipe.pipeline.choice, "schedule"),
                                    option(recipe.pipeline.choice, "cut"),
                                    recipe.data_parallel.choice.plugin,
                                    option(recipe.data_parallel.choice, "stage"),
                                    recipe.backend.choice.plugin,
                                    std::to_string(static_cast<int>(recipe.train.recompute)),
                                    std::to_string(recipe.model.hidden_dropout),
                                    std::to_string(recipe.model.attention_dropout),
                                    std::to_string(recipe.model.tied_head)};
  };
  EXPECT_EQ(parts(twin), parts(real));
  const auto phases = BatchSchedule(twin.train.batch, 2).phases(twin.train.train_samples);
  EXPECT_EQ(phases.size(), 5U);
  EXPECT_EQ(phases.front().batch.micro_batch, 1);
  EXPECT_EQ(phases.back().batch.micro_batch, 2);
}

TEST(Configs, Quickstart) {
  const Recipe one = load("quickstart.toml", 1), two = load("quickstart.toml", 2);
  EXPECT_EQ(one.train.train_steps, two.train.train_steps);
  EXPECT_EQ(two.grid.data, 2);
}

TEST(Configs, MultilingualIsTheQuickstartWithAVocabulary) {
  const Recipe small = load("quickstart.toml", 2), own = load("multilingual.toml", 2);
  EXPECT_EQ(own.model.layers, small.model.layers);
  EXPECT_EQ(own.model.vocab_size, 8192);
  EXPECT_EQ(own.tokenizer.plugin, "huggingface");
}

TEST(Configs, TheAblationPairIsOneWordApart) {
  const Recipe bf16 = load("ablation/bf16.toml", 1), fp16 = load("ablation/fp16.toml", 1);
  ASSERT_EQ(bf16.keys.size(), fp16.keys.size());
  std::vector<std::string> different;
  for (std::size_t i = 0; i < bf16.keys.size(); ++i) {
    if (bf16.keys[i].value != fp16.keys[i].value) different.push_back(bf16.keys[i].key);
  }
  // The word, and the places it writes to.
  EXPECT_THAT(different,
              ::testing::ElementsAre("run.dir", "optimizer.plugin", "checkpoint.save", "log.file", "log.metrics"));
}

// A recipe in configs/ that nothing above names would go unchecked.
TEST(Configs, EveryOneIsChecked) {
  const std::vector<std::string> known = {"ablation/bf16.toml", "ablation/fp16.toml",      "bloom-176b.toml",
                                          "bloom-1b1.toml",     "bloom-1b7.toml",          "bloom-3b.toml",
                                          "bloom-560m.toml",    "bloom-7b1.toml",          "bloom-twin.toml",
                                          "quickstart.toml",    "include/bloom-fp16.toml", "multilingual.toml"};
  const std::filesystem::path folder = std::string(ESPALIER_SOURCE_DIR) + "/configs";
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    if (entry.path().extension() == ".toml" && !name.starts_with("clusters/")) found.push_back(name);
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(known));
}

struct Published {
  const char* file;
  int world;
  std::int64_t parameters;
};

class SmallerBlooms : public ::testing::TestWithParam<Published> {};

TEST_P(SmallerBlooms, HasItsPublishedSizeAndGrid) {
  const Recipe recipe = load(GetParam().file, GetParam().world);
  EXPECT_EQ(count_parameters(recipe.model), GetParam().parameters);
  EXPECT_EQ(recipe.optimizer.plugin, "optim_fp16");
  EXPECT_EQ(recipe.grid.world(), GetParam().world);
}

INSTANTIATE_TEST_SUITE_P(Sizes, SmallerBlooms,
                         ::testing::Values(Published{"bloom-560m.toml", 32, 559'214'592},
                                           Published{"bloom-1b1.toml", 32, 1'065'314'304},
                                           Published{"bloom-1b7.toml", 64, 1'722'408'960},
                                           Published{"bloom-3b.toml", 128, 3'002'557'440},
                                           Published{"bloom-7b1.toml", 128, 7'069'016'064}));

}  // namespace
}  // namespace espalier::app
