#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "config/recipe.hpp"
#include "unit/config/support.hpp"

namespace espalier::app {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Combinations : public ::testing::Test {
 protected:
  /// kSmall without batch sizes, for two or more replicas.
  std::string batch(const std::string& sizes) {
    return folder_.write(
        "batch.toml",
        "[model]\nlayers = 6\nhidden = 96\nheads = 12\nvocab_size = 260\nseq_length = 32\n[train]\n"
        "train_samples = 100000\nlr = 1e-3\n" +
            sizes +
            "\n[optimizer]\nplugin = \"optim_bf16\"\n[data]\nplugin = \"synthetic\"\n"
            "[parallel.data]\nplugin = \"parallel_zero\"\n[parallel.tensor]\nplugin = \"parallel_tensor\"\n"
            "[parallel.pipeline]\nplugin = \"parallel_pipeline\"\n");
  }
  RecipeFolder folder_;
};

// G09.
TEST_F(Combinations, BatchNumbersMultiplyUp) {
  const std::string three = batch("global_batch_size = 256\nmicro_batch_size = 4\ngradient_accumulation_steps = 8");
  EXPECT_EQ(load(three, {}, 8).grid.data, 8);
  EXPECT_THAT(refusal(three, {}, 1), AllOf(HasSubstr(":10:1: train.global_batch_size: 256 ≠ 4 × 8 × 1"),
                                           HasSubstr("data 1 = world 1 / (tensor 1 × pipeline 1)")));
  EXPECT_THAT(refusal(three, {"parallel.tensor.size=2"}, 8), HasSubstr("256 ≠ 4 × 8 × 4"));
  EXPECT_THAT(refusal(three, {"parallel.tensor.size=2"}, 8), HasSubstr("data 4 = world 8 / (tensor 2 × pipeline 1)"));
  EXPECT_EQ(load(three).grid.world(), 8) << "without a world all three say how many replicas are meant";
}

TEST_F(Combinations, AnyTwoBatchNumbersDeriveTheThird) {
  const StepBatch expected{256, 4, 8};
  for (const char* two :
       {"global_batch_size = 256\nmicro_batch_size = 4", "global_batch_size = 256\ngradient_accumulation_steps = 8",
        "micro_batch_size = 4\ngradient_accumulation_steps = 8"}) {
    const Recipe recipe = load(batch(two), {}, 8);
    EXPECT_EQ(BatchSchedule(recipe.train.batch, recipe.grid.data).at(0), expected) << two;
  }
  EXPECT_THAT(refusal(batch("global_batch_size = 256\nmicro_batch_size = 3"), {}, 1),
              HasSubstr("256 is not a multiple of micro_batch_size 3 × data 1"));
  EXPECT_THAT(refusal(batch("global_batch_size = 256\ngradient_accumulation_steps = 3"), {}, 1),
              HasSubstr("256 is not a multiple of gradient_accumulation_steps 3 × data 1"));
  EXPECT_THAT(refusal(batch("global_batch_size = 256")), HasSubstr("train.global_batch_size: alone; give two of"));
  EXPECT_THAT(refusal(batch("")), HasSubstr("train.global_batch_size: missing; give two of"));
}

// X18.
TEST_F(Combinations, TensorSplitsHeadsAndPipelineSplitsLayers) {
  const std::string file = batch("global_batch_size = 8\nmicro_batch_size = 1");
  EXPECT_EQ(load(file, {"parallel.tensor.size=4"}, 4).grid.tensor, 4);
  EXPECT_THAT(refusal(file, {"parallel.tensor.size=8"}, 8),
              HasSubstr("--set parallel.tensor.size: 12 heads cannot be split over tensor 8"));
  EXPECT_EQ(load(file, {"parallel.pipeline.size=4"}, 4).grid.pipeline, 4) << "an uneven cut is documented";
  EXPECT_THAT(refusal(file, {"parallel.pipeline.size=7"}, 7), HasSubstr("6 layers leave a stage of pipeline 7 empty"));
}

TEST_F(Combinations, TheWorldMustFit) {
  const std::string file = batch("global_batch_size = 8\nmicro_batch_size = 1");
  EXPECT_THAT(refusal(file, {"parallel.tensor.size=4"}, 6),
              HasSubstr("world 6 is not a multiple of tensor 4 × pipeline 1"));
  EXPECT_THAT(refusal(file, {"parallel.data.size=4"}, 2),
              HasSubstr("--set parallel.data.size: 4 ≠ 2 = world 2 / (tensor 1 × pipeline 1)"));
  EXPECT_THAT(refusal(file, {"parallel.tensor.size=2", "parallel.tensor.plugin=none"}, 2),
              HasSubstr("parallel.tensor.plugin: a size of 2 needs a plugin, as plugin = \"parallel_tensor\""));
  EXPECT_THAT(refusal(file, {"parallel.pipeline.size=2", "parallel.data.plugin=none"}, 2),
              HasSubstr("parallel.data.plugin: tensor 1 × pipeline 2 needs a plugin that sums over these groups"));
}

TEST_F(Combinations, RampsMustMeetTheFinalBatch) {
  const std::string file = batch("global_batch_size = 32\nmicro_batch_size = 2");
  EXPECT_EQ(load(file, {"train.rampup_batch_size=[8, 8, 100]"}, 4).train.batch.ramp.start, 8);
  EXPECT_THAT(refusal(file, {"train.rampup_batch_size=[8, 8]"}, 4),
              HasSubstr("expected [start, increment, samples], found 2 numbers"));
  EXPECT_THAT(refusal(file, {"train.rampup_batch_size=[8, 5, 100]"}, 4),
              HasSubstr("never becomes global_batch_size 32"));
  EXPECT_THAT(refusal(file, {"train.rampup_batch_size=[40, 8, 100]"}, 4),
              HasSubstr("never becomes global_batch_size 32"));
  EXPECT_THAT(refusal(file, {"train.rampup_batch_size=[8, 4, 100]"}, 4),
              HasSubstr("a batch of 12 on the way is not a multiple of micro_batch_size 2 × data 4"));
  EXPECT_THAT(refusal(file, {"train.micro_batch_schedule=[{global_batch_size=16, micro_batch_size=4}, "
                             "{global_batch_size=8, micro_batch_size=1}]"}),
              HasSubstr("global_batch_size must ascend; 8 comes after 16"));
  EXPECT_THAT(refusal(file, {"train.micro_batch_schedule=[{global_batch_size=4096, micro_batch_size=2}]"}),
              HasSubstr("its entry for a global batch of 4096 is never reached"));
  EXPECT_THAT(refusal(file, {"train.micro_batch_schedule=[{global_batch_size=16, micro_batch=4}]"}),
              HasSubstr("micro_batch_size"));
}

TEST_F(Combinations, BatchPlanReachesThePlugins) {
  const Recipe recipe =
      load(batch("global_batch_size = 32\nmicro_batch_size = 2"),
           {"train.rampup_batch_size=[8, 8, 100]", "eval.interval=1000", "eval.at_end=true", "eval.at_start=true"}, 4);
  const RunFacts facts = facts_of(recipe, 3);
  EXPECT_THAT(facts.batch.micro_batches, ElementsAre(2, 1, 2, 2, 2, 3, 2, 4));
  EXPECT_EQ(facts.batch.train_samples, 100000);
  EXPECT_EQ(facts.grid.data_rank, 3);
  EXPECT_EQ(facts.batch.eval_runs, 3 + 2);  // steps 1000, 2000, 3000 of 3129; start and end
}

TEST_F(Combinations, RanksOfTheGrid) {
  const Recipe recipe = load(batch("global_batch_size = 32\nmicro_batch_size = 2"),
                             {"parallel.tensor.size=2", "parallel.pipeline.size=3"}, 24);
  EXPECT_EQ(recipe.grid.data, 4);
  // Tensor innermost, then data, pipeline outermost: rank = (pipeline · 4 + data) · 2 + tensor.
  const Grid grid = grid_of(recipe, 2 * 8 + 3 * 2 + 1);
  EXPECT_EQ(grid.tensor_rank, 1);
  EXPECT_EQ(grid.data_rank, 3);
  EXPECT_EQ(grid.pipeline_rank, 2);
}

// L06.
TEST_F(Combinations, ScheduleLengthsMustMakeSense) {
  const std::string file = batch("global_batch_size = 8\nmicro_batch_size = 1");
  EXPECT_THAT(refusal(file, {"train.lr_warmup_samples=500", "train.lr_decay_samples=500"}),
              HasSubstr("--set train.lr_warmup_samples: 500 leaves nothing to decay: lr_decay_samples is 500"));
  EXPECT_THAT(refusal(file, {"train.lr_warmup_samples=100000"}), HasSubstr("the length of the run is 100000"));
  EXPECT_THAT(refusal(file, {"train.lr_warmup_samples=-1"}), HasSubstr("train.lr_warmup_samples: expected integer"));
  EXPECT_THAT(refusal(file, {"train.lr_decay_samples=0"}), HasSubstr("train.lr_decay_samples: expected integer"));
  EXPECT_THAT(refusal(file, {"train.train_samples=0"}), HasSubstr("train.train_samples: expected integer"));
  EXPECT_THAT(refusal(file, {"train.train_samples=7"}), HasSubstr("7 is less than the first batch of 8 samples"));
  EXPECT_THAT(refusal(file, {"train.lr=-1"}), HasSubstr("train.lr: expected number from 0"));
  EXPECT_THAT(load(file, {"train.lr=0"}).warnings, ElementsAre(HasSubstr("train.lr is 0")));  // case P08 measures so
  EXPECT_THAT(refusal(file, {"train.min_lr=1"}), HasSubstr("1 is above the peak: lr is 0.001"));
  EXPECT_THAT(load(file, {"train.lr_decay_samples=50000"}).warnings,
              ElementsAre(HasSubstr("reached at 50000 samples, before training ends at 100000")));
}

TEST_F(Combinations, SettingsThatNothingUsesAreRefused) {
  const std::string file = batch("global_batch_size = 8\nmicro_batch_size = 1");
  EXPECT_THAT(refusal(file, {"train.lr_wsd_decay_samples=5"}), HasSubstr("only lr_decay_style = \"wsd\" uses it"));
  EXPECT_THAT(refusal(file, {"train.lr_decay_style=wsd"}), HasSubstr("needs lr_wsd_decay_samples"));
  EXPECT_THAT(refusal(file, {"train.lr_decay_style=wsd", "train.lr_wsd_decay_samples=100001"}),
              HasSubstr("is longer than"));
  EXPECT_THAT(refusal(file, {"train.lr_decay_style=constant", "train.min_lr=1e-5"}),
              HasSubstr("\"constant\" does not use it"));
  EXPECT_EQ(load(file, {"train.lr_decay_style=constant"}).train.rate.decay, RateDecay::constant);
  EXPECT_THAT(refusal(file, {"checkpoint.load_model=hf", "checkpoint.load=none"}),
              HasSubstr("checkpoint.load_model: is where to start when checkpoint.load = \"auto\" finds nothing"));
  EXPECT_EQ(load(file, {"checkpoint.load_model=hf"}).checkpoint.load_model, "hf");
  EXPECT_THAT(refusal(file, {"checkpoint.load_optimizer=skip", "checkpoint.load=none"}),
              HasSubstr("checkpoint.load_optimizer: \"skip\" says how state is loaded"));
  EXPECT_THAT(refusal(file, {"guard.action=repair", "guard.interval=0"}), HasSubstr("nothing can be repaired"));
  EXPECT_THAT(refusal(file, {"backend.device=cuda"}), HasSubstr("backend.device: \"cuda\": plugin \"reference\""));
}

TEST_F(Combinations, SettingsOfWhatIsOffAreWarnedOf) {
  const std::string file = batch("global_batch_size = 8\nmicro_batch_size = 1");
  const auto warned = [&](std::vector<std::string> overrides, const char* text) {
    const std::vector<std::string> found = load(file, std::move(overrides)).warnings;
    return std::any_of(found.begin(), found.end(), [&](const std::string& one) { return one.find(text) == 0; });
  };
  EXPECT_TRUE(warned({"eval.samples=4"}, "eval.samples has no effect"));
  EXPECT_FALSE(warned({"eval.samples=4", "eval.at_end=true"}, "eval.samples"));
  EXPECT_TRUE(warned({"train.rampup_batch_size=[8,1,16]"}, "train.rampup_batch_size has no effect"));
  EXPECT_FALSE(warned({"train.rampup_batch_size=[4,4,16]"}, "train.rampup_batch_size has no effect"));
  EXPECT_TRUE(warned({"debug.collective_timeout=3.5"}, "debug.collective_timeout has no effect"));
  EXPECT_FALSE(warned({"debug.collective_timeout=3.5", "debug.check_collectives=true"}, "debug."));
}

TEST_F(Combinations, LearnedPositionsReachOverTheSample) {
  const std::string file = batch("global_batch_size = 8\nmicro_batch_size = 1");
  EXPECT_EQ(shape_of(load(file).model).positions, 0);
  const Recipe learned = load(file, {"model.position=learned"});
  EXPECT_EQ(shape_of(learned.model).positions, learned.model.seq_length);
  const std::string more = std::to_string(learned.model.seq_length + 3);
  EXPECT_EQ(shape_of(load(file, {"model.position=learned", "model.positions=" + more}).model).positions,
            learned.model.seq_length + 3);
  EXPECT_THAT(refusal(file, {"model.position=learned", "model.positions=1"}),
              HasSubstr("1 learned positions are too few"));
  EXPECT_THAT(refusal(file, {"model.positions=" + more}), HasSubstr("ALiBi has no table"));
}

TEST_F(Combinations, ExpectedParametersAreCompared) {
  const std::string file = batch("global_batch_size = 8\nmicro_batch_size = 1");
  const std::int64_t count = count_parameters(load(file).model);
  EXPECT_EQ(load(file, {"model.expect_params=" + std::to_string(count)}).model.expect_params, count);
  EXPECT_THAT(
      refusal(file, {"model.expect_params=" + std::to_string(count + 1)}),
      HasSubstr("expected " + std::to_string(count + 1) + " parameters, the model has " + std::to_string(count)));
}

}  // namespace
}  // namespace espalier::app
