// Each rule of the checker broken once: the refusal names stage, index and instruction.
#include "espalier/parallel/checker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "espalier/error.hpp"
#include "support/doubles/gpipe_double.hpp"

namespace espalier {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::GpipeDouble;

std::string verdict(const ScheduleLists& lists) {
  try {
    check_schedule(lists);
  } catch (const PluginError& error) {
    return error.what();
  }
  return "sound";
}

/// Two stages, two micro-batches, one chunk:
/// stage 0:  0 F0  1 sA0  2 F1  3 sA1  4 rG0  5 B0  6 rG1  7 B1  8 reduce  9 tie  10 step
/// stage 1:  0 rA0  1 F0  2 rA1  3 F1  4 B0  5 sG0  6 B1  7 sG1  8 reduce  9 tie  10 step
class Rules : public testing::Test {
 protected:
  Rules() : lists_(lists_of(GpipeDouble(2), Mode::train, 2)) {}
  std::vector<Instruction>& stage(std::size_t s) { return lists_.stages[s]; }
  void remove(std::size_t s, std::size_t index) {
    stage(s).erase(stage(s).begin() + static_cast<std::ptrdiff_t>(index));
  }
  void insert(std::size_t s, std::size_t index, const Instruction& at) {
    stage(s).insert(stage(s).begin() + static_cast<std::ptrdiff_t>(index), at);
  }
  void swap(std::size_t s, std::size_t a, std::size_t b) { std::swap(stage(s)[a], stage(s)[b]); }

  ScheduleLists lists_;
};

TEST_F(Rules, SoundListsTellTheirActivations) {
  EXPECT_THAT(check_schedule(lists_), ElementsAre(2, 2));
  EXPECT_THAT(check_schedule(lists_of(*make_single_stage(), Mode::train, 5)), ElementsAre(1));
  EXPECT_THAT(check_schedule(lists_of(GpipeDouble(3), Mode::forward_only, 5)), ElementsAre(1, 1, 1));
}

TEST_F(Rules, AMicroBatchIsForwardedOnce) {
  insert(0, 1, {Do::forward, 0, 0, 0});
  EXPECT_THAT(verdict(lists_),
              HasSubstr("stage 0, instruction 1 (forward of micro-batch 0, chunk 0): a second forward"));
}

TEST_F(Rules, NoMicroBatchIsLeftOut) {
  lists_.micro_batches = 3;
  EXPECT_THAT(verdict(lists_), HasSubstr("stage 0, instruction 8 (reduce_gradients): weight gradients are missing"));
  ScheduleLists forward = lists_of(GpipeDouble(2), Mode::forward_only, 2);
  forward.stages[1].pop_back();
  EXPECT_THAT(verdict(forward), HasSubstr("stage 1, end of its list: no forward of micro-batch 1, chunk 0"));
}

TEST_F(Rules, MicroBatchesAndChunksAreThoseThereAre) {
  ScheduleLists other = lists_;
  other.micro_batches = 1;
  EXPECT_THAT(verdict(other),
              HasSubstr("instruction 2 (forward of micro-batch 1, chunk 0): there is no such micro-batch"));
  stage(1)[1].chunk = 1;
  EXPECT_THAT(verdict(lists_),
              HasSubstr("stage 1, instruction 1 (forward of micro-batch 0, chunk 1): there is no such chunk"));
}

TEST_F(Rules, BackwardFollowsForwardOnce) {
  ScheduleLists other = lists_;
  std::swap(other.stages[1][3], other.stages[1][4]);  // B0 before F1 is fine, B1 before F1 is not
  EXPECT_EQ(verdict(other), "sound");
  insert(1, 5, {Do::backward, 0, 0, 0});
  EXPECT_THAT(verdict(lists_),
              HasSubstr("stage 1, instruction 5 (backward of micro-batch 0, chunk 0): a second backward"));
  remove(1, 5);
  insert(1, 0, {Do::backward, 0, 0, 0});
  EXPECT_THAT(verdict(lists_),
              HasSubstr("stage 1, instruction 0 (backward of micro-batch 0, chunk 0): before its forward"));
}

TEST_F(Rules, GradientsAreAddedInAscendingOrder) {
  swap(1, 4, 6);
  stage(1)[5].micro_batch = 1;
  stage(1)[7].micro_batch = 0;
  EXPECT_THAT(verdict(lists_),
              HasSubstr("stage 1, instruction 4 (backward of micro-batch 1, chunk 0): gradients must be added in "
                        "ascending order of micro-batches"));
}

TEST_F(Rules, WeightHalvesAscendToo) {
  stage(1)[4].what = stage(1)[6].what = Do::backward_input;
  insert(1, 8, {Do::backward_weight, 1, 0, 0});
  insert(1, 8, {Do::backward_weight, 0, 0, 0});
  EXPECT_EQ(verdict(lists_), "sound");
  swap(1, 8, 9);
  EXPECT_THAT(verdict(lists_),
              HasSubstr("stage 1, instruction 8 (backward_weight of micro-batch 1, chunk 0): gradients must be"));
  swap(1, 8, 9);
  insert(1, 9, {Do::backward_weight, 0, 0, 0});
  EXPECT_THAT(verdict(lists_),
              HasSubstr("stage 1, instruction 9 (backward_weight of micro-batch 0, chunk 0): a second weight half"));
  stage(1)[9] = {Do::backward_weight, 1, 0, 0};
  remove(1, 10);
  swap(1, 3, 8);
  EXPECT_THAT(verdict(lists_),
              HasSubstr("stage 1, instruction 3 (backward_weight of micro-batch 0, chunk 0): before its input half"));
}

TEST_F(Rules, WorkWaitsForItsMessage) {
  ScheduleLists other = lists_;
  std::swap(other.stages[1][0], other.stages[1][1]);
  EXPECT_THAT(
      verdict(other),
      HasSubstr("stage 1, instruction 0 (forward of micro-batch 0, chunk 0): its activation has not been received"));
  swap(0, 4, 5);
  EXPECT_THAT(
      verdict(lists_),
      HasSubstr("stage 0, instruction 4 (backward of micro-batch 0, chunk 0): its gradient has not been received"));
}

TEST_F(Rules, MessagesFollowTheirWork) {
  swap(0, 0, 1);
  EXPECT_THAT(
      verdict(lists_),
      HasSubstr("stage 0, instruction 0 (send_activation of micro-batch 0, chunk 0, to stage 1): before the work"));
}

TEST_F(Rules, EveryMessageIsSentAndReceivedOnce) {
  ScheduleLists other = lists_;
  other.stages[0].erase(other.stages[0].begin() + 3);
  EXPECT_THAT(verdict(other), HasSubstr("stage 0, end of its list: no send_activation of micro-batch 1, chunk 0"));
  other = lists_;
  other.stages[1].insert(other.stages[1].begin() + 6, other.stages[1][5]);
  EXPECT_THAT(verdict(other),
              HasSubstr("stage 1, instruction 6 (send_gradient of micro-batch 0, chunk 0, to stage 0): sent twice"));
  insert(1, 2, stage(1)[0]);
  EXPECT_THAT(
      verdict(lists_),
      HasSubstr("stage 1, instruction 2 (receive_activation of micro-batch 0, chunk 0, from stage 0): received twice"));
}

TEST_F(Rules, MessagesGoToTheNeighbouringPart) {
  ScheduleLists three = lists_of(GpipeDouble(3), Mode::train, 1);
  three.stages[0][1].peer = 2;
  EXPECT_THAT(
      verdict(three),
      HasSubstr("stage 0, instruction 1 (send_activation of micro-batch 0, chunk 0, to stage 2): not the stage that"));
  insert(0, 1, {Do::send_gradient, 0, 0, 1});
  EXPECT_THAT(
      verdict(lists_),
      HasSubstr("stage 0, instruction 1 (send_gradient of micro-batch 0, chunk 0, to stage 1): this end of the model"));
  ScheduleLists alone{Mode::forward_only, 2, 1, {{{Do::forward, 0, 0, 0}, {Do::send_activation, 0, 0, 0}}}};
  EXPECT_THAT(verdict(alone), HasSubstr("a stage cannot send to itself"));
}

TEST_F(Rules, ForwardOnlyHasNoBackward) {
  ScheduleLists forward = lists_of(GpipeDouble(2), Mode::forward_only, 2);
  forward.stages[1].push_back({Do::backward, 0, 0, 0});
  EXPECT_THAT(verdict(forward),
              HasSubstr("stage 1, instruction 4 (backward of micro-batch 0, chunk 0): there is no backward"));
  forward.stages[1].back() = {Do::send_gradient, 0, 0, 0};
  EXPECT_THAT(verdict(forward), HasSubstr("there are no gradients in a forward-only list"));
  forward.stages[1].back() = {Do::step, 0, 0, 0};
  EXPECT_THAT(verdict(forward), HasSubstr("stage 1, instruction 4 (step): there is no step"));
}

TEST_F(Rules, TheStepEndsInOrder) {
  ScheduleLists other = lists_;
  std::swap(other.stages[1][6], other.stages[1][8]);
  EXPECT_THAT(verdict(other), HasSubstr("stage 1, instruction 6 (reduce_gradients): weight gradients are missing"));
  other = lists_;
  std::swap(other.stages[0][8], other.stages[0][9]);
  EXPECT_THAT(verdict(other),
              HasSubstr("stage 0, instruction 8 (reduce_tied_gradients): the tie is summed after the data reduction"));
  other = lists_;
  other.stages[0].erase(other.stages[0].begin() + 9);
  EXPECT_THAT(verdict(other), HasSubstr("stage 0, instruction 9 (step): the tied gradients have not been reduced"));
  other = lists_;
  other.stages[0].insert(other.stages[0].begin() + 9, {Do::reduce_tied_gradients, 0, 0, 0});
  EXPECT_THAT(verdict(other),
              HasSubstr("stage 0, instruction 10 (reduce_tied_gradients): a second reduction of the tie"));
  other = lists_;
  other.stages[0].insert(other.stages[0].begin() + 9, {Do::reduce_gradients, 0, 0, 0});
  EXPECT_THAT(verdict(other), HasSubstr("stage 0, instruction 9 (reduce_gradients): a second reduction"));
  other = lists_;
  other.stages[0].pop_back();
  EXPECT_THAT(verdict(other), HasSubstr("stage 0, end of its list: no step"));
  other.stages[0].erase(other.stages[0].begin() + 8, other.stages[0].end());
  other.stages[0].push_back({Do::step, 0, 0, 0});
  EXPECT_THAT(verdict(other), HasSubstr("stage 0, instruction 8 (step): gradients have not been reduced"));
  stage(0).push_back({Do::forward, 0, 0, 0});
  EXPECT_THAT(verdict(lists_),
              HasSubstr("stage 0, instruction 11 (forward of micro-batch 0, chunk 0): nothing may follow step"));
  ScheduleLists three = lists_of(GpipeDouble(3), Mode::train, 1);
  three.stages[1].insert(three.stages[1].end() - 1, {Do::reduce_tied_gradients, 0, 0, 0});
  EXPECT_THAT(verdict(three), HasSubstr("only the first and the last stage hold the tied embedding"));
}

TEST_F(Rules, BackwardDoesNotFollowTheReduction) {
  stage(0).insert(stage(0).end() - 2, {Do::backward, 0, 0, 0});
  EXPECT_THAT(
      verdict(lists_),
      HasSubstr("stage 0, instruction 9 (backward of micro-batch 0, chunk 0): gradients have been reduced before"));
}

// Case X16 as a list: both neighbours stand in a send.
TEST_F(Rules, CommunicationHasOneOrder) {
  stage(0) = {{Do::forward, 0, 0, 0},          {Do::send_activation, 0, 0, 1},  {Do::forward, 1, 0, 0},
              {Do::send_activation, 1, 0, 1},  {Do::receive_gradient, 0, 0, 1}, {Do::backward, 0, 0, 0},
              {Do::receive_gradient, 1, 0, 1}, {Do::backward, 1, 0, 0}};
  stage(1) = {
      {Do::receive_activation, 0, 0, 0}, {Do::forward, 0, 0, 0}, {Do::backward, 0, 0, 0}, {Do::send_gradient, 0, 0, 0},
      {Do::receive_activation, 1, 0, 0}, {Do::forward, 1, 0, 0}, {Do::backward, 1, 0, 0}, {Do::send_gradient, 1, 0, 0}};
  for (std::size_t s : {0u, 1u}) {
    for (const Do what : {Do::reduce_gradients, Do::reduce_tied_gradients, Do::step})
      stage(s).push_back({what, 0, 0, 0});
  }
  EXPECT_THAT(
      verdict(lists_),
      AllOf(
          HasSubstr("its communication has no order"),
          HasSubstr("stage 0, instruction 3 (send_activation of micro-batch 1, chunk 0, to stage 1) waits for stage 1"),
          HasSubstr("stage 1, instruction 3 (send_gradient of micro-batch 0, chunk 0, to stage 0) waits for stage 0")));
  std::swap(stage(0)[3], stage(0)[4]);  // the receive first
  EXPECT_EQ(verdict(lists_), "sound");
}

// A circle over two groups: the pair of the tie and the pipeline.
TEST_F(Rules, CollectivesBelongToTheOrder) {
  ScheduleLists three = lists_of(GpipeDouble(3), Mode::train, 1);
  // Stage 2 sums the tie before it sends what the first stage's backward waits for.
  auto& last = three.stages[2];
  const Instruction send = last[3];
  ASSERT_EQ(send.what, Do::send_gradient);
  last.erase(last.begin() + 3);
  last.insert(last.end() - 1, send);
  EXPECT_THAT(
      verdict(three),
      AllOf(HasSubstr("no order"), HasSubstr("stage 2, instruction 4 (reduce_tied_gradients) waits for stage 0"),
            HasSubstr("stage 0, instruction 2 (receive_gradient of micro-batch 0, chunk 0, from stage 1)")));
}

TEST_F(Rules, OpenReceivesAreBounded) {
  ScheduleLists many = lists_of(GpipeDouble(2), Mode::train, kMostOpenReceives + 1);
  auto& list = many.stages[1];
  std::stable_partition(list.begin(), list.end(),
                        [](const Instruction& i) { return i.what == Do::receive_activation; });
  EXPECT_THAT(
      verdict(many),
      HasSubstr("stage 1, instruction 64 (receive_activation of micro-batch 64, chunk 0, from stage 0): more than 64"));
}

TEST(IdleShares, CountWaitingAtBothEnds) {
  // Two stages, one micro-batch: 1 + 1 forward, 3 + 3 backward; each stage works 4 of 8.
  EXPECT_THAT(idle_shares(lists_of(GpipeDouble(2), Mode::train, 1), {1, 1, 2}), ElementsAre(0.5, 0.5));
  EXPECT_THAT(idle_shares(lists_of(*make_single_stage(), Mode::train, 3), {1, 1, 1}), ElementsAre(0.0));
  EXPECT_THAT(idle_shares(lists_of(GpipeDouble(2), Mode::forward_only, 3), {2, 0, 0}), ElementsAre(0.25, 0.25));
}

}  // namespace
}  // namespace espalier
