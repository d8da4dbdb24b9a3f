#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "config/load.hpp"
#include "espalier/adamw.hpp"
#include "espalier/error.hpp"

namespace espalier::app {

/// A folder of its own for a test's recipes; gone with the object.
class RecipeFolder {
 public:
  RecipeFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("espalier-recipe-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~RecipeFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  RecipeFolder(const RecipeFolder&) = delete;
  RecipeFolder& operator=(const RecipeFolder&) = delete;

  std::string write(const std::string& name, std::string_view text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

/// Stands for the plugin host: optimizers take AdamW's options, strategies and backends a few.
inline std::span<const OptionSpec> test_options(const PluginChoice& choice, const std::vector<std::string>&) {
  static constexpr OptionSpec kStage[] = {{"stage", OptionType::integer, "0", "ZeRO stage", 0, 3}};
  if (choice.plugin.starts_with("optim_")) return kAdamWOptions;
  if (choice.plugin == "parallel_zero") return kStage;
  if (choice.plugin.starts_with("parallel_")) return {};
  throw PluginError("plugin \"" + choice.library_name() + "\" not found");
}

inline Recipe load(const std::string& file, std::vector<std::string> overrides = {}, int world = 0,
                   const std::string& environment = "") {
  return load_recipe({file, std::move(overrides), environment, world}, test_options);
}

/// Everything the loader says about a recipe it must refuse.
inline std::string refusal(const std::string& file, std::vector<std::string> overrides = {}, int world = 0,
                           ExitCode code = ExitCode::usage) {
  try {
    load(file, std::move(overrides), world);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

inline constexpr std::string_view kSmall = R"([model]
layers = 6
hidden = 96
heads = 12
vocab_size = 260
seq_length = 32
[train]
train_samples = 1000
global_batch_size = 8
micro_batch_size = 2
lr = 1
[optimizer]
plugin = "optim_bf16"
betas = [0, 0.95]
[data]
plugin = "synthetic"
)";

}  // namespace espalier::app
