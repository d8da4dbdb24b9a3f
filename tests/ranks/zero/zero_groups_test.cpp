// Other groups beside the data group: what is partial over the tensor group, and the tied pair of first and last stage.
#include <gtest/gtest.h>

#include <algorithm>

#include "ranks/zero/zero_run.hpp"
#include "support/mpi_test.hpp"

namespace espalier {
namespace {

using namespace testing_support;

class ZeroGroups : public testing::TestWithParam<int> {};

/// Sum over `ranks` ranks of what write_gradients adds in two micro-batches; `share` of the tied pair: first or last
/// stage alone.
double gradient_sum(int parameter, std::int64_t i, int ranks, int step) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) {
    for (int m = 0; m < 2; ++m) sum += double{toy_gradient(parameter, i, m, r, step)};
  }
  return sum;
}

TEST_P(ZeroGroups, PartialGradientsAreSummedOverTheTensorGroup) {
  const auto world = make_world_communicator();
  // Tensor group of all; vectors are partial, one matrix is split by rows, the rest is whole and equal on all.
  auto locals = whole(toy_parameters());
  for (LocalParameter& local : locals) {
    if (local.parameter.shape.rank() == 1) local.placement.copies = Copies::partial;
  }
  ToyAdamW optimizer(DType::f32);
  // Whole parameters see the same gradients on all tensor ranks, partial ones a part each: here rank's own for partial
  // ones only.
  std::vector<LocalParameter> partial, same;
  for (const LocalParameter& local : locals)
    (local.placement.copies == Copies::partial ? partial : same).push_back(local);
  const Outcome parts = run_zero({GetParam()}, optimizer, 1, {{}, world->split(0, world->rank(), "tensor"), {}}, *world,
                                 partial, world->rank());
  const Outcome equal =
      run_zero({GetParam()}, optimizer, 1, {{}, world->split(0, world->rank(), "tensor"), {}}, *world, same, 0);
  for (const Parameter& parameter : toy_parameters()) {
    const bool is_partial = parameter.shape.rank() == 1;
    double expected = 0;
    for (std::int64_t i = 0; i < parameter.shape.elements(); ++i) {
      const double g = gradient_sum(parameter.index, i, is_partial ? world->size() : 1, 0);
      expected += g * g;
    }
    const double found = (is_partial ? parts : equal).squares[static_cast<std::size_t>(parameter.index)];
    EXPECT_NEAR(found, expected, 1e-5 * expected) << parameter.name << ": counted once, whatever the tensor size";
  }
}

TEST_P(ZeroGroups, TheTiedPairIsSummedAndCountedOnce) {
  const auto world = make_world_communicator();
  if (world->size() % 2 != 0) return;  // stages of one data group size need an even world
  // Two stages over data groups of half the world. Each stage writes its share of the tied embedding.
  const int stage = world->rank() / (world->size() / 2);
  std::vector<LocalParameter> locals;
  for (const LocalParameter& local : whole(toy_parameters())) {
    const int layer = local.parameter.layer;
    if (local.parameter.tied || (stage == 0) == (layer <= 1)) locals.push_back(local);
  }
  const auto data_size = world->size() / 2;
  const int data_rank = world->rank() % data_size;
  ToyAdamW optimizer(DType::bf16);
  Outcome outcomes[4];
  for (int zero_stage : {0, 1, 2, 3}) {
    outcomes[zero_stage] =
        run_zero({zero_stage}, optimizer, 2,
                 {world->split(stage, world->rank(), "data"), {}, world->split(data_rank, stage, "pipeline")}, *world,
                 locals, world->rank());
  }
  for (int first : {0, 2}) {
    EXPECT_EQ(outcomes[first].squares, outcomes[first + 1].squares);
    EXPECT_EQ(outcomes[first].weights, outcomes[first + 1].weights);
    EXPECT_EQ(outcomes[first].state, outcomes[first + 1].state);
  }
  const Outcome& outcome = outcomes[GetParam()];
  // Both stages write both shares here (0.25 and 0.75), so that the pair's sum is that of all ranks.
  for (int step = 0; step < 2; ++step) {
    double expected = 0;
    for (std::int64_t i = 0; i < 13 * 7; ++i) {
      const double g = gradient_sum(0, i, world->size(), step);
      expected += g * g;
    }
    EXPECT_NEAR(outcome.squares[static_cast<std::size_t>(step) * toy_parameters().size()], expected, 1e-5 * expected);
  }
  // Both ends hold the same weights to the bit.
  const auto pipeline = world->split(data_rank, stage, "pipeline");
  std::vector<float> mine = outcome.weights.at("word_embeddings.weight"), first = mine;
  class HostStream final : public Stream {
  } stream;
  pipeline->finish(pipeline->start_broadcast(View::vector(first.data(), std::ssize(first), DType::f32), 0, stream),
                   stream);
  EXPECT_EQ(first, mine);
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroGroups, testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace espalier
