// Case X10 to the letter: a micro-batch of one token with a loss of 4, and one of three tokens with a loss of 0. (That
// gradients are those of one batch: tests/ranks/tensor/layouts_test.cpp.)
#include "train/verdict.hpp"

#include <gtest/gtest.h>

#include "support/doubles/plain_backend.hpp"
#include "support/mpi_test.hpp"

namespace espalier::testing_support {
namespace {

TEST(Verdict, TheLossIsAMeanOverTokensNotOverMicroBatches) {
  const auto world = make_world_communicator();
  PlainBackend backend;
  Stream& stream = backend.device().lane(Lane::compute);
  ModelShape shape;
  shape.layers = 1;
  shape.hidden = 4;
  shape.heads = 1;
  shape.ffn = 16;
  shape.vocab = 7;
  shape.seq_length = 4;
  const app::ParameterList parameters(shape);
  app::VerdictMaker verdict(parameters, backend, *world);
  verdict.begin(stream);
  const double micro_batches[2][2] = {{4, 1}, {0, 3}};  // sum of losses, tokens
  for (int m = 0; m < 2; ++m) {
    if (m % world->size() != world->rank()) continue;
    for (int i = 0; i < 2; ++i) verdict.sums()[i] += micro_batches[m][i];
  }
  const auto [loss, tokens] = verdict.world_sums(stream);
  EXPECT_EQ(tokens, 4);
  EXPECT_EQ(loss / tokens, 1.0);
}

}  // namespace
}  // namespace espalier::testing_support
