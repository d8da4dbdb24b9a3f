// `trainer numerics`: the fixtures' truth under several recipes and layouts, a checkpoint, and what a user can get
// wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/process.hpp"
#include "interop/safetensors.hpp"
#include "unit/text/files.hpp"

namespace espalier::cli_test {
namespace {

using app::text_test::Folder;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kTrainer = TRAINER_EXE;
const std::string kModels = ESPALIER_FIXTURES_DIR "/model/";

constexpr const char* kRecipe = R"(
[run]
dir = "run"
[model]
layers = 1
hidden = 32
heads = 2
vocab_size = 320
seq_length = 16
attention_dropout = 0.1
[train]
train_iters = 2
global_batch_size = 4
micro_batch_size = 1
lr = 1e-3
[optimizer]
plugin = "optim_fp32"
[data]
plugin = "synthetic"
[parallel.data]
plugin = "parallel_zero"
)";

class Numerics : public ::testing::Test {
 protected:
  void SetUp() override { folder_.write("recipe.toml", kRecipe); }

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  Outcome numerics(const std::string& model, const std::string& options, const std::string& before = "") {
    return run("cd " + quoted(folder_.path().string()) + " && " + before + kTrainer + " numerics --model " + kModels +
               model + "/hf --batch " + kModels + model + "/fwd_bwd.safetensors --out out.safetensors " + options);
  }
  static std::string truth(const std::string& model) {
    return " --compare " + kModels + model + "/fwd_bwd.safetensors";
  }
  Folder folder_;
};

TEST_F(Numerics, WithoutARecipeItIsTheTruth) {
  for (const std::string model : {"tiny_a", "tiny_b"}) {
    const Outcome outcome = numerics(model, truth(model) + " --tolerance 5e-5");
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_THAT(outcome.text,
                AllOf(HasSubstr("logits"), HasSubstr("loss"), HasSubstr("grad.h.0.mlp.dense_h_to_4h.weight")));
    const app::SafetensorsFile written(path("out.safetensors"));
    const app::SafetensorsFile reference(kModels + model + "/fwd_bwd.safetensors");
    for (const app::FileTensor& tensor : reference.tensors()) {
      if (tensor.name == "input_ids" || tensor.name == "logits_hf_fp32") continue;
      EXPECT_EQ(written.at(tensor.name).shape_text(), tensor.shape_text());
      EXPECT_EQ(written.at(tensor.name).type, "F32");
    }
  }
}

TEST_F(Numerics, AnyLayoutOfARecipe) {
  // Four ranks share two samples: two of them have none.
  for (const std::string ranks : {"1", "2", "4"}) {
    const Outcome outcome = numerics("tiny_b", "--recipe recipe.toml --tolerance 5e-5" + truth("tiny_b"),
                                     std::string("OMP_NUM_THREADS=1 ") + MPIEXEC + " -n " + ranks + " ");
    EXPECT_EQ(outcome.code, 0) << ranks << " ranks: " << outcome.text;
  }
}

TEST_F(Numerics, AToleranceThatIsExceededIsExitCode7) {
  const Outcome outcome =
      numerics("tiny_a", "--recipe recipe.toml --set optimizer.plugin=optim_bf16 --tolerance 5e-5" + truth("tiny_a"));
  EXPECT_EQ(outcome.code, 7);
  EXPECT_THAT(outcome.text, HasSubstr("above the tolerance 5e-05"));
  EXPECT_EQ(numerics("tiny_a", "--recipe recipe.toml --set optimizer.plugin=optim_bf16" + truth("tiny_a")).code, 0);
}

TEST_F(Numerics, ACheckpointIsAModelToo) {
  const std::string here = "cd " + quoted(folder_.path().string()) + " && ";
  const Outcome training = run(here + kTrainer + " train recipe.toml");
  ASSERT_EQ(training.code, 0) << training.text;
  app::SafetensorsWriter batch(path("batch.safetensors"), {{"input_ids", DType::i64, {1, 4}}});
  const std::int64_t ids[] = {7, 65, 66, 255};
  batch.write(std::as_bytes(std::span(ids)));
  batch.finish();
  const std::string common = here + kTrainer + " numerics --model run/checkpoints/step_2 --batch batch.safetensors ";
  const Outcome plain = run(common + "--out plain.safetensors");
  EXPECT_EQ(plain.code, 0) << plain.text;
  const Outcome again =
      run(common + "--out again.safetensors --recipe recipe.toml --compare plain.safetensors --tolerance 1e-6");
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_EQ(app::SafetensorsFile(path("plain.safetensors")).at("logits").shape_text(), "[1, 3, 320]");
}

TEST_F(Numerics, WhatAUserCanGetWrong) {
  const auto asked = [&](const std::string& model, const std::string& batch) {
    return run("cd " + quoted(folder_.path().string()) + " && " + kTrainer + " numerics --model " + model +
               " --batch " + batch + " --out out.safetensors");
  };
  const std::string model = kModels + "tiny_a/hf", batch = kModels + "tiny_a/fwd_bwd.safetensors";
  const Outcome no_model = asked(folder_.path().string(), batch);
  EXPECT_EQ(no_model.code, 4);
  EXPECT_THAT(no_model.text, HasSubstr("a Hugging Face folder has a config.json"));
  const Outcome no_ids = asked(model, model + "/model.safetensors");
  EXPECT_EQ(no_ids.code, 4);
  EXPECT_THAT(no_ids.text, HasSubstr("no tensor \"input_ids\""));
  const Outcome outside = asked(model, kModels + "tiny_b/fwd_bwd.safetensors");  // its vocabulary has 301 ids
  EXPECT_EQ(outside.code, 4);
  EXPECT_THAT(outside.text, HasSubstr("the model's ids are 0 to 255"));
  const Outcome ranks = numerics("tiny_a", "", std::string(MPIEXEC) + " -n 2 ");
  EXPECT_EQ(ranks.code, 2);
  EXPECT_THAT(ranks.text, HasSubstr("2 ranks need a recipe"));
  EXPECT_FALSE(std::filesystem::exists(path("out.safetensors")));
  // What would be ignored, or would overwrite what it is measured against.
  EXPECT_THAT(numerics("tiny_a", "--set optimizer.plugin=optim_bf16").text, HasSubstr("--set: changes a recipe, and none is given"));
  EXPECT_THAT(numerics("tiny_a", "--tolerance 1e-4").text, HasSubstr("--tolerance: there is nothing to compare with"));
  EXPECT_THAT(numerics("tiny_a", truth("tiny_a") + " --tolerance -1").text, HasSubstr("--tolerance: must be 0 or more"));
  folder_.write("out.safetensors", "mine");
  const Outcome itself = numerics("tiny_a", "--compare out.safetensors");
  EXPECT_EQ(itself.code, 2);
  EXPECT_THAT(itself.text, HasSubstr("--out: is the file of --compare"));
  EXPECT_EQ(std::filesystem::file_size(path("out.safetensors")), 4u);
}

}  // namespace
}  // namespace espalier::cli_test
