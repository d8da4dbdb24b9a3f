#include "sharding.hpp"

#include <gtest/gtest.h>

#include <string>

#include "model/parameters.hpp"

namespace espalier::parallel_tensor {
namespace {

ModelShape model_of(std::int64_t heads, std::int64_t vocab) {
  ModelShape model;
  model.layers = 6;
  model.heads = heads;
  model.hidden = 4 * heads;
  model.ffn = 16 * heads;
  model.vocab = vocab;
  model.seq_length = 7;
  model.positions = 9;
  model.tied_head = false;
  return model;
}

class Sharding : public testing::TestWithParam<int> {};

TEST_P(Sharding, PiecesTileEveryParameter) {
  const int size = GetParam();
  const ModelShape model = model_of(12, 13);
  for (const Parameter& parameter : app::ParameterList(model).all()) {
    std::int64_t next = 0, real = 0;
    for (int rank = 0; rank < size; ++rank) {
      const Placement place = parallel_tensor::place(parameter, {size, rank, false});
      if (place.dim < 0) {
        EXPECT_EQ(place.copies, Copies::whole) << parameter.name;
        EXPECT_EQ(place.local, parameter.shape) << parameter.name;
        continue;
      }
      EXPECT_EQ(place.copies, Copies::split) << parameter.name;
      EXPECT_EQ(place.begin, next) << parameter.name << ": contiguous, in order of ranks";
      EXPECT_EQ(place.local[place.dim], place.end - place.begin);
      EXPECT_GE(place.real_end, place.begin);
      EXPECT_LE(place.real_end, place.end);
      next = place.end;
      real += place.real_end - place.begin;
    }
    if (next > 0) {
      const Placement place = parallel_tensor::place(parameter, {size, 0, false});
      EXPECT_EQ(real, parameter.shape[place.dim]) << parameter.name << ": each logical row once";
    }
  }
}

TEST_P(Sharding, OnlySplitRolesAreSplit) {
  const int size = GetParam();
  for (const Parameter& parameter : app::ParameterList(model_of(12, 13)).all()) {
    for (const bool sequence_parallel : {false, true}) {
      const Placement place = parallel_tensor::place(parameter, {size, size - 1, sequence_parallel});
      const Copies unsplit = sequence_parallel && size > 1 ? Copies::partial : Copies::whole;
      int dim = -1;
      switch (parameter.role) {
        case Role::word_embedding:
        case Role::head_weight:
        case Role::qkv_weight:
        case Role::qkv_bias:
        case Role::mlp_up_weight:
        case Role::mlp_up_bias:
          dim = 0;
          break;
        case Role::attention_out_weight:
        case Role::mlp_down_weight:
          dim = 1;
          break;
        default:
          break;
      }
      if (size == 1) dim = -1;
      EXPECT_EQ(place.dim, dim) << parameter.name;
      EXPECT_EQ(place.copies, dim >= 0 ? Copies::split : unsplit) << parameter.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Sharding, testing::Values(1, 2, 3, 4, 6));

TEST(ShardingOfHeads, QkvIsCutBetweenHeads) {
  Parameter qkv{"qkv", {3 * 48, 48}, Role::qkv_weight};
  const Placement place = parallel_tensor::place(qkv, {4, 2, false});
  EXPECT_EQ(place.begin, 2 * 3 * (3 * 4)) << "ranks have 3 heads of q, k and v with 4 rows each";
  EXPECT_EQ(place.end - place.begin, 3 * (3 * 4));
}

TEST(ShardingOfTheVocabulary, TheLastRanksArePadded) {
  const Parameter word{"word", {5, 48}, Role::word_embedding};
  const std::int64_t begins[] = {0, 2, 4, 6}, ends[] = {2, 4, 5, 6};
  for (int rank = 0; rank < 4; ++rank) {
    const Placement place = parallel_tensor::place(word, {4, rank, false});
    EXPECT_EQ(place.begin, begins[rank]);
    EXPECT_EQ(place.real_end, ends[rank]);
    EXPECT_EQ(place.local, (Shape{2, 48}));
  }
}

// Case X18: sizes are held against heads, not layers.
TEST(Accepts, NamesWhatDoesNotDivide) {
  const ModelShape model = model_of(12, 13);
  EXPECT_FALSE(accepts(model, {}, {4, 0, false}));
  const Reason heads = accepts(model, {}, {8, 0, false});
  ASSERT_TRUE(heads);
  EXPECT_NE(heads->find("12 heads cannot be split over 8 ranks"), std::string::npos) << *heads;
  EXPECT_NE(heads->find("1, 2, 3, 4, 6, 12"), std::string::npos) << *heads;
  ModelShape narrow = model;
  narrow.ffn = 49;
  EXPECT_NE(accepts(narrow, {}, {2, 0, false})->find("ffn of 49"), std::string::npos);
}

TEST(Accepts, SequenceParallelismNeedsTokensThatDivide) {
  const ModelShape model = model_of(12, 13);
  BatchPlan batch;
  batch.micro_batches = {4, 1, 3, 2};
  EXPECT_FALSE(accepts(model, batch, {4, 0, false}));
  const Reason tokens = accepts(model, batch, {4, 0, true});
  ASSERT_TRUE(tokens);
  EXPECT_NE(tokens->find("3 · 7 tokens"), std::string::npos) << *tokens;
  EXPECT_FALSE(accepts(model, batch, {1, 0, false}));
  batch.micro_batches = {4, 1, 8, 2};
  EXPECT_FALSE(accepts(model, batch, {4, 0, true}));
}

}  // namespace
}  // namespace espalier::parallel_tensor
