#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ranks/zero/zero_run.hpp"
#include "support/mpi_test.hpp"

namespace espalier {
namespace {

using namespace testing_support;

class HostStream final : public Stream {};

struct Case {
  DType working;
  const char* reduce_dtype;
  bool matrices;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << name_of(c.working) << " weights, messages " << c.reduce_dtype << (c.matrices ? ", whole matrices" : "");
}

std::unique_ptr<Optimizer> make_optimizer(const Case& c) {
  if (c.matrices) return std::make_unique<ToyMuon>();
  return std::make_unique<ToyAdamW>(c.working, c.working);
}

class ZeroTest : public testing::TestWithParam<Case> {
 protected:
  Outcome run(const ZeroSettings& settings) {
    const auto optimizer = make_optimizer(GetParam());
    ZeroSettings set = settings;
    set.reduce_dtype = GetParam().reduce_dtype;
    return run_zero(set, *optimizer, 4, {world_->split(0, world_->rank(), "data"), {}, {}}, *world_, locals_,
                    world_->rank());
  }
  Outcome run(int stage, int micro_batches = 2) { return run({stage, "", micro_batches}); }
  const std::unique_ptr<Communicator> world_ = make_world_communicator();
  const std::vector<LocalParameter> locals_ = whole(toy_parameters());
};

template <class Map>
void expect_same_bits(const Map& a, const Map& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [key, values] : a) {
    const auto other = b.find(key);
    ASSERT_NE(other, b.end()) << key;
    ASSERT_EQ(values.size(), other->second.size()) << key;
    EXPECT_EQ(std::memcmp(values.data(), other->second.data(), values.size() * sizeof(values[0])), 0) << key;
  }
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  expect_same_bits(a.weights, b.weights);
  expect_same_bits(a.state, b.state);
  EXPECT_EQ(a.squares, b.squares);
}

/// Squares of every parameter and step: what other orders of a sum may change.
void expect_near(const Outcome& a, const Outcome& b, double relative) {
  ASSERT_EQ(a.squares.size(), b.squares.size());
  for (std::size_t i = 0; i < a.squares.size(); ++i) EXPECT_NEAR(a.squares[i], b.squares[i], relative * a.squares[i]);
}

TEST_P(ZeroTest, Stages0And1And2And3AreEqualToTheBit) {
  const Outcome zero1 = run(1);
  expect_same_bits(run(0), zero1);
  expect_same_bits(run(2), run(3));
  // Something has happened, and alike on all ranks.
  EXPECT_NE(zero1.weights.at("ln_f.bias")[0], toy_weight(8, 0));
  for (const auto& [name, values] : zero1.weights) {
    std::vector<float> first = values;
    HostStream stream;
    world_->finish(world_->start_broadcast(View::vector(first.data(), std::ssize(first), DType::f32), 0, stream),
                   stream);
    EXPECT_EQ(first, values) << name;
  }
}

TEST_P(ZeroTest, OneMicroBatchMakesAllStagesEqualToTheBit) {
  const Outcome expected = run(0, 1);
  for (const int stage : {1, 2, 3}) expect_same_bits(expected, run(stage, 1));
}

TEST_P(ZeroTest, MicroBatchesFirstOrRanksFirstDiffersByRoundingOnly) {
  // The messages' dtype is rounded once a step or once a micro-batch.
  const bool exact_messages = std::string_view(GetParam().reduce_dtype) == "f32" || GetParam().working == DType::f32;
  const Outcome one = run(1, 5), two = run(2, 5);
  expect_near(one, two, exact_messages && !GetParam().matrices ? 1e-5 : 2e-2);
  EXPECT_EQ(one.squares == two.squares, world_->size() == 1);
}

TEST_P(ZeroTest, ReducedOnceAStepStage2IsStage1) {
  const Outcome expected = run(1, 3);
  ZeroSettings once{2, "", 3};
  once.more["reduce"] = std::string("step");
  expect_same_bits(expected, run(once));
}

TEST_P(ZeroTest, BucketsDoNotChangeABit) {
  for (const int stage : {1, 3}) {
    ZeroSettings large{stage};
    large.more["bucket_bytes"] = std::int64_t{1} << 20;
    expect_same_bits(run(stage), run(large));
  }
}

TEST_P(ZeroTest, WhatIsKeptGatheredDoesNotChangeABit) {
  const Outcome expected = run(3);
  for (const std::int64_t keep : {0, 2, 100}) {
    ZeroSettings settings{3};
    settings.more["keep_gathered"] = keep;
    settings.more["prefetch"] = std::int64_t{keep == 2 ? 0 : 3};
    expect_same_bits(expected, run(settings));
  }
}

TEST_P(ZeroTest, FollowsASingleReplica) {
  // One rank that works off the micro-batches of all: another order of the sums, the same numbers otherwise.
  const bool exact_messages = std::string_view(GetParam().reduce_dtype) == "f32" || world_->size() == 1;
  PlainBackend backend;
  const auto optimizer = make_optimizer(GetParam());
  const auto single = make_single_replica();
  StatePlan plan;
  plan.parameters = locals_;
  plan.precision = optimizer->precision();
  plan.end_layer = 4;
  single->bind(plan, *optimizer, backend);
  HostStream stream;
  fill_weights(*single, locals_, stream);
  std::vector<double> squares;
  for (int step = 0; step < 4; ++step) {
    for (int rank = 0; rank < world_->size(); ++rank) {
      for (int m = 0; m < 2; ++m) write_gradients(*single, locals_, m, rank, step, stream);
    }
    single->reduce(Do::reduce_gradients, stream);
    std::vector<double> slots(locals_.size(), 0.0);
    single->squares(slots.data(), stream);
    squares.insert(squares.end(), slots.begin(), slots.end());
    const float factor = 0.25f;
    const std::int32_t skip = step == 1 ? 1 : 0;
    single->step(*optimizer, {1e-2, &factor, &skip, step + 1}, stream);
  }
  const Outcome zero = run(1);
  ASSERT_EQ(zero.squares.size(), squares.size());
  for (std::size_t i = 0; i < squares.size(); ++i) {
    EXPECT_NEAR(zero.squares[i], squares[i], (exact_messages ? 1e-5 : 1e-2) * squares[i]) << "slot " << i;
  }
  // The sign of the matrix optimizer and AdamW's first steps turn a rounding near zero into a whole step: most agree
  // closely, none differs by more than the steps taken.
  std::size_t far = 0, all = 0;
  for (const StatePiece& piece : single->state()) {
    if (piece.state != "master") continue;
    const auto& other =
        zero.state.at(std::string(locals_[static_cast<std::size_t>(piece.parameter)].parameter.name) + "/master");
    for (std::int64_t i = 0; i < piece.data.elements(); ++i) {
      const double difference = std::abs(load(piece.data, i) - other[static_cast<std::size_t>(i)]);
      EXPECT_LT(difference, 0.08);
      far += difference > (exact_messages ? 2e-6 : 2e-3);
      all += 1;
    }
  }
  EXPECT_LE(far, all / 100) << "of " << all;
}

TEST_P(ZeroTest, StateGoesOutAndComesBackAtAnotherStage) {
  // The pieces written at stage 0 hold what stage 1 writes: the same keys and sizes.
  const Outcome zero0 = run(0);
  for (const LocalParameter& local : locals_) {
    const std::string name(local.parameter.name);
    ASSERT_EQ(zero0.state.at(name + "/master").size(), static_cast<std::size_t>(local.placement.local.elements()));
    if (!GetParam().matrices) {
      EXPECT_EQ(zero0.state.count(name + "/moment1"), 1u);
      EXPECT_EQ(zero0.state.count(name + "/moment2"), 1u);
    } else {
      EXPECT_EQ(zero0.state.at(name + "/updates"), std::vector<float>{3.0f}) << "three of four steps were applied";
      EXPECT_EQ(zero0.state.at("/temperature"), std::vector<float>{0.5f});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, ZeroTest,
                         testing::Values(Case{DType::f32, "auto", false}, Case{DType::bf16, "f32", false},
                                         Case{DType::bf16, "auto", false}, Case{DType::f16, "bf16", false},
                                         Case{DType::f32, "f32", true}, Case{DType::f32, "bf16", true}));

std::string refusal(const std::map<std::string, ConfigValue::Data>& options) {
  PlainBackend backend;
  TestHost host(backend);
  try {
    const TestConfig config(parallel_zero::kOptions, options);
    parallel_zero::Zero zero(config.view(), host);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ZeroOptions, RefusesWhatCannotBe) {
  const auto contains = [](const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(refusal({{"stage", std::int64_t{4}}}), "stage");
  contains(refusal({{"reduce_dtype", std::string("f64")}}), "reduce_dtype");
  EXPECT_EQ(refusal({{"offload_optimizer", std::string("cpu")}}), "accepted");
  contains(refusal({{"stage", std::int64_t{3}}, {"reduce", std::string("step")}}), "use stage 2");
  contains(refusal({{"stage", std::int64_t{1}}, {"reduce", std::string("step")}}), "a choice of stage 2");
  EXPECT_EQ(refusal({{"stage", std::int64_t{2}}, {"reduce", std::string("step")}}), "accepted");
  for (const char* key : {"prefetch", "keep_gathered"}) {
    for (const std::int64_t stage : {0, 1, 2}) {
      contains(refusal({{"stage", stage}, {key, std::int64_t{2}}}), std::string(key) + ": is of stage 3");
      EXPECT_EQ(refusal({{"stage", stage}, {key, std::int64_t{1}}}), "accepted") << "a saved recipe holds the default";
    }
    EXPECT_EQ(refusal({{"stage", std::int64_t{3}}, {key, std::int64_t{2}}}), "accepted");
  }
}

// Two chunks on one stage: the head's gradient of micro-batch 1 would overwrite that of 0.
TEST(ZeroOptions, RefusesTiedGradientsThatMixMicroBatches) {
  const auto world = make_world_communicator();
  PlainBackend backend;
  TestHost host(backend, world->split(0, world->rank(), "data"));
  const TestConfig config(parallel_zero::kOptions, {{"stage", std::int64_t{2}}});
  const auto locals = whole(toy_parameters());
  const auto bind = [&](std::vector<Instruction> schedule) {
    parallel_zero::Zero zero(config.view(), host);
    ToyAdamW optimizer(DType::f32);
    StatePlan plan;
    plan.parameters = locals;
    plan.precision = optimizer.precision();
    plan.schedule = schedule;
    zero.bind(plan, optimizer, backend);
  };
  const Instruction head0{Do::backward, 0, 1, 0}, head1{Do::backward, 1, 1, 0};
  const Instruction embedding0{Do::backward, 0, 0, 0}, embedding1{Do::backward, 1, 0, 0};
  bind({head0, embedding0, head1, embedding1});
  if (world->size() == 1) {
    bind({head0, head1, embedding0, embedding1});
  } else {
    EXPECT_THROW(bind({head0, head1, embedding0, embedding1}), ConfigError);
  }
}

// The owner of a whole matrix puts it together from equal parts.
TEST(ZeroOptions, RefusesUnequalPartsForAnOptimizerOfWholeMatrices) {
  const auto world = make_world_communicator();
  PlainBackend backend;
  TestHost host(backend, {}, world->split(0, world->rank(), "tensor"));
  const TestConfig config(parallel_zero::kOptions, {});
  parallel_zero::Zero zero(config.view(), host);
  auto locals = whole(toy_parameters());
  const std::int64_t begin = world->rank() == 0 ? 0 : 11;
  locals[2].placement = {Copies::split, 0, begin, begin + 3, begin + 3, {3, 7}};
  StatePlan plan;
  plan.parameters = locals;
  ToyMuon optimizer;
  if (world->rank() == 0) return;  // its part is as good as any
  EXPECT_THROW(zero.bind(plan, optimizer, backend), ConfigError);
}

}  // namespace
}  // namespace espalier
