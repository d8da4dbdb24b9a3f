// The replica guard: what ranks hold alike is compared, a difference is named or mended (cases X04, X11).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranks/guard/guarded_run.hpp"
#include "support/mpi_test.hpp"

namespace espalier::testing_support {
namespace {

using testing::HasSubstr;

/// How the model lies over the ranks, and where one bit of the last of them goes wrong.
struct Damage {
  const char* name;
  std::map<std::string, std::string> settings;
  const char* parameter;
  const char* state;
  const char* group;
};

std::ostream& operator<<(std::ostream& out, const Damage& damage) { return out << damage.name; }

constexpr const char* kWorking = "working weights";

const std::map<std::string, std::string> kTensor = {
    {"parallel.tensor.plugin", "\"parallel_tensor\""}, {"parallel.tensor.size", "2"}, {"parallel.data.stage", "0"}};
const std::map<std::string, std::string> kSequence = {{"parallel.tensor.plugin", "\"parallel_tensor\""},
                                                      {"parallel.tensor.size", "2"},
                                                      {"parallel.tensor.sequence_parallel", "true"},
                                                      {"parallel.data.stage", "0"}};
const std::map<std::string, std::string> kTensorStage3 = {
    {"parallel.tensor.plugin", "\"parallel_tensor\""}, {"parallel.tensor.size", "2"}, {"parallel.data.stage", "3"}};
const std::map<std::string, std::string> kPipeline = {{"parallel.pipeline.plugin", "\"parallel_pipeline\""},
                                                      {"parallel.pipeline.size", "2"}};
const std::map<std::string, std::string> kStage0 = {{"parallel.data.stage", "0"}};
const std::map<std::string, std::string> kStage1 = {{"parallel.data.stage", "1"}};

class Guard : public testing::Test {
 protected:
  int last() const { return world_->size() - 1; }
  GuardedRun run_of(const std::string& name, const std::map<std::string, std::string>& settings) {
    GuardedRun run(*world_, name);
    for (const auto& [key, value] : settings) run.set(key, value);
    return run;
  }

  const std::unique_ptr<Communicator> world_ = make_world_communicator();
};

class GuardFinds : public Guard, public testing::WithParamInterface<Damage> {};

TEST_P(GuardFinds, TheParameterAndTheRank) {
  const Damage& damage = GetParam();
  GuardedRun run = run_of(damage.name, damage.settings);
  if (world_->rank() == last()) {
    run.after_step(3, [&](app::Session& session) { flip(session, damage.parameter, damage.state); });
  }
  const GuardedEnd end = run.run();
  EXPECT_EQ(end.code, ExitCode::communication);
  EXPECT_THAT(end.error, HasSubstr("after step 3"));
  EXPECT_THAT(end.error, HasSubstr(std::string(damage.parameter) + " (" + damage.state + ")"));
  EXPECT_THAT(end.error, HasSubstr("rank " + std::to_string(last()) + " differs from rank"));
  EXPECT_THAT(end.error, HasSubstr(damage.group));
  EXPECT_THAT(end.error, HasSubstr("all were equal after step 2"));
}

/// The copy of most ranks wins, on a draw that of the lowest, and the run is the one without the damage.
TEST_P(GuardFinds, RepairGoesOnAsIfNothingHadBeen) {
  const Damage& damage = GetParam();
  GuardedRun clean = run_of(std::string(damage.name) + "_clean", damage.settings);
  GuardedRun damaged = run_of(std::string(damage.name) + "_repaired", damage.settings);
  damaged.set("guard.action", "\"repair\"");
  if (world_->rank() == last()) {
    damaged.after_step(3, [&](app::Session& session) { flip(session, damage.parameter, damage.state); });
  }
  const GuardedEnd expected = clean.run(), end = damaged.run();
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(end.code, ExitCode::ok);
  EXPECT_EQ(end.state.size(), expected.state.size());
  for (const auto& [name, bytes] : expected.state) {
    EXPECT_EQ(end.state.at(name), bytes) << name;
  }
  EXPECT_THAT(end.events_of("guard"), HasSubstr("repaired: the copy of rank"));
  EXPECT_THAT(end.events_of("guard"), HasSubstr(damage.parameter));
  // What kernels have packed of damaged weights is for another version of them. (0: nothing is kept at all.)
  if (expected.weight_version > 0) {
    EXPECT_EQ(end.weight_version, expected.weight_version + 1);
  }
}

const Damage kDamages[] = {
    {"norm", kTensor, "h.0.input_layernorm.weight", "master", "tensor group"},
    {"norm_weight", kTensor, "h.1.post_attention_layernorm.bias", kWorking, "tensor group"},
    {"row_bias", kSequence, "h.1.mlp.dense_4h_to_h.bias", "moment2", "tensor group"},
    {"moment", kStage0, "h.0.mlp.dense_h_to_4h.weight", "moment1", "data group"},
    {"replica", kStage1, "h.1.self_attention.dense.weight", kWorking, "data group"},
    {"shard", kTensorStage3, "h.1.mlp.dense_4h_to_h.bias", "master", "tensor group"},
    {"tied", kPipeline, "word_embeddings.weight", "master", "last stage"},
};
INSTANTIATE_TEST_SUITE_P(Damages, GuardFinds, testing::ValuesIn(kDamages),
                         [](const auto& test) { return std::string(test.param.name); });

// Without a majority the lowest rank's copy counts, so that all ranks agree on which it is.
TEST_F(Guard, MostRanksAreRight) {
  GuardedRun stops = run_of("majority", kStage0), clean = run_of("majority_clean", kStage0);
  GuardedRun mends = run_of("majority_mends", kStage0);
  mends.set("guard.action", "\"repair\"");
  if (world_->rank() == 0) {
    for (GuardedRun* run : {&stops, &mends}) {
      run->after_step(3, [](app::Session& session) { flip(session, "ln_f.bias", "master"); });
    }
  }
  const bool majority = world_->size() > 2;
  EXPECT_THAT(stops.run().error,
              HasSubstr(std::string("ln_f.bias (master) is not the same over the data group: ") +
                        (majority ? "rank 0 differs from ranks 1-3;" : "rank 1 differs from rank 0 (no majority);")));
  const GuardedEnd expected = clean.run(), end = mends.run();
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(end.code, ExitCode::ok);
  EXPECT_THAT(end.events_of("guard"),
              HasSubstr(majority ? "the copy of rank 1 went to rank 0" : "the copy of rank 0 went to rank 1"));
  EXPECT_EQ(end.state == expected.state, majority);
}

// Case X04: every replicated tensor is the same at every step and after a resume, and the run says that it looked.
TEST_F(Guard, TensorGroupsStayEqualForAHundredStepsAndAResume) {
  for (const auto& split : {kTensor, kSequence}) {
    GuardedRun run = run_of("x04", split);
    run.set("train.train_iters", "100").set("model.hidden_dropout", "0.1").set("model.attention_dropout", "0.1");
    run.set("train.exit_interval", "60").set("train.micro_batch_size", world_->size() == 2 ? "8" : "4");
    GuardedEnd end = run.run();
    EXPECT_EQ(end.error, "");
    EXPECT_EQ(end.code, ExitCode::interrupted);
    EXPECT_THAT(end.events_of("guard"), HasSubstr("61 comparisons"));  // at the start, too
    end = run.run();
    EXPECT_EQ(end.error, "");
    EXPECT_EQ(end.code, ExitCode::ok);
    EXPECT_THAT(end.events_of("guard"), HasSubstr("41 comparisons"));
  }
}

TEST_F(Guard, ADifferenceIsSeenAtTheNextComparison) {
  GuardedRun run = run_of("interval", kTensor);
  run.set("guard.interval", "2");
  if (world_->rank() == 1) run.after_step(3, [](app::Session& session) { flip(session, "ln_f.weight", "moment1"); });
  const GuardedEnd end = run.run();
  EXPECT_THAT(end.error, HasSubstr("after step 4: ln_f.weight"));
  EXPECT_THAT(end.error, HasSubstr("all were equal after step 2"));
}

// Damage between two comparisons must not reach a checkpoint.
TEST_F(Guard, LooksBeforeACheckpointIsWritten) {
  GuardedRun run = run_of("save", kTensor);
  run.set("guard.interval", "1000").set("checkpoint.save_interval", "4");
  if (world_->rank() == 1) run.after_step(3, [](app::Session& session) { flip(session, "ln_f.weight", "moment1"); });
  EXPECT_THAT(run.run().error, HasSubstr("after step 4: ln_f.weight"));
}

TEST_F(Guard, OffItComparesNothing) {
  GuardedRun run = run_of("off", kTensor);
  run.set("guard.interval", "0");
  if (world_->rank() == 1) run.after_step(3, [](app::Session& session) { flip(session, "ln_f.weight", "moment1"); });
  const GuardedEnd end = run.run();
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(end.events_of("guard"), "");
}

TEST_F(Guard, NumbersOfTheRun) {
  const auto scale_of = [](app::Session& session) { return session.optimizer().scalars().at(0).value; };
  for (const bool mend : {false, true}) {
    GuardedRun run = run_of("scale", kTensor);
    run.set("optimizer.plugin", "\"optim_fp16\"");
    if (mend) run.set("guard.action", "\"repair\"");
    if (world_->rank() == 1) run.after_step(3, [&](app::Session& session) { *scale_of(session) *= 2; });
    const GuardedEnd end = run.run();
    EXPECT_EQ(end.code, mend ? ExitCode::ok : ExitCode::communication);
    EXPECT_THAT(mend ? end.events_of("guard") : end.error,
                HasSubstr("the optimizer's loss_scale is not the same on all ranks"));
  }
}

// What ranks do not share in spite of the comparison of their recipes is noticed before the first step, repair or not.
TEST_F(Guard, RecipesThatDiffer) {
  struct Case {
    const char *key, *value, *text;
  };
  for (const Case& one :
       {Case{"train.lr", "2e-2", "learning rate is not the same on all ranks: 0.02 on rank 1, 0.01 on rank"},
        Case{"train.seed", "7", "train.seed is not the same on all ranks: 7 on rank 1, 1234 on rank"}}) {
    GuardedRun run = run_of("recipe", kTensor);
    run.set("guard.action", "\"repair\"").set("debug.compare_recipes", "false");
    if (world_->rank() == 1) run.set(one.key, one.value);
    const GuardedEnd end = run.run();
    EXPECT_THAT(end.error, HasSubstr("after step 0"));
    EXPECT_THAT(end.error, HasSubstr(one.text));
    EXPECT_THAT(end.error, HasSubstr("cannot be repaired"));
  }
}

}  // namespace
}  // namespace espalier::testing_support
