#include "model/parameters.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace espalier::app {
namespace {

ModelShape bloom(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t vocab) {
  ModelShape shape;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = heads;
  shape.ffn = 4 * hidden;
  shape.vocab = vocab;
  shape.seq_length = 2048;
  return shape;
}

std::vector<std::string> names(std::span<const LocalParameter> list) {
  std::vector<std::string> result;
  for (const LocalParameter& local : list) result.emplace_back(local.parameter.name);
  return result;
}

TEST(Parameters, Bloom176BCountsAsPublished) {
  EXPECT_EQ(ParameterList(bloom(70, 14336, 112, 250880)).count(), 176'247'271'424);
}

TEST(Parameters, NamesAndShapesOfTinyA) {
  const ParameterList list(bloom(2, 64, 4, 256));
  EXPECT_EQ(list.count(), 116'608);
  EXPECT_EQ(list.size(), 3 + 2 * 12 + 2);
  EXPECT_EQ(list[0].name, "word_embeddings.weight");
  EXPECT_TRUE(list[0].tied);
  const Parameter* up = list.find("h.1.mlp.dense_h_to_4h.weight");
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(up->shape, (Shape{256, 64}));
  EXPECT_EQ(up->layer, 2);
  EXPECT_EQ(list[list.size() - 1].name, "ln_f.bias");
  EXPECT_EQ(list[list.size() - 1].layer, 3);
  for (int i = 0; i < list.size(); ++i) EXPECT_EQ(list[i].index, i);
}

TEST(Parameters, TheOtherShapeOfModel) {
  ModelShape shape = bloom(1, 8, 2, 16);
  shape.positions = 32;
  shape.embedding_norm = false;
  shape.tied_head = false;
  const ParameterList list(shape);
  EXPECT_NE(list.find("position_embeddings.weight"), nullptr);
  EXPECT_EQ(list.find("word_embeddings_layernorm.weight"), nullptr);
  ASSERT_NE(list.find("lm_head.weight"), nullptr);
  EXPECT_EQ(list.find("lm_head.weight")->layer, 2);
  EXPECT_FALSE(list[0].tied);
}

TEST(Parameters, MatricesDecayUnlessTheRuleSaysOtherwise) {
  const ParameterList list(bloom(1, 8, 2, 16));
  for (const Parameter& parameter : list.all())
    EXPECT_EQ(parameter.decays, parameter.shape.rank() == 2) << parameter.name;
  const ParameterList none(bloom(1, 8, 2, 16),
                           [](const Parameter& parameter) { return parameter.name == "ln_f.bias"; });
  for (const Parameter& parameter : none.all()) EXPECT_EQ(parameter.decays, parameter.name == "ln_f.bias");
}

TEST(Parameters, NamesSurviveAMove) {
  ParameterList list(bloom(1, 8, 2, 16));
  const ParameterList moved = std::move(list);
  EXPECT_EQ(moved[0].name, "word_embeddings.weight");
}

TEST(Parameters, TheLastStageHoldsACopyOfTheTiedEmbedding) {
  const ParameterList list(bloom(2, 8, 2, 16));
  const auto tensor = make_whole_tensors();
  const LayerRange whole[] = {{0, 4}};
  EXPECT_EQ(local_parameters(list, *tensor, whole).size(), static_cast<std::size_t>(list.size()));

  const LayerRange last[] = {{2, 4}};
  const auto held = local_parameters(list, *tensor, last);
  const auto held_names = names(held);
  ASSERT_EQ(held.size(), 12u + 3u);
  EXPECT_EQ(held_names[12], "word_embeddings.weight");
  EXPECT_EQ(held[12].parameter.layer, 3);
  EXPECT_EQ(held[12].parameter.index, 0);
  EXPECT_TRUE(held[12].parameter.tied);

  // Two chunks of one rank that hold both ends need no copy.
  const LayerRange ends[] = {{0, 1}, {3, 4}};
  EXPECT_EQ(local_parameters(list, *tensor, ends).size(), 5u);
}

TEST(Parameters, CostsAreRelativeToABlock) {
  const auto costs = layer_costs(bloom(70, 14336, 112, 250880));
  ASSERT_EQ(costs.size(), 72u);
  EXPECT_EQ(costs[1], 1.0);
  EXPECT_EQ(costs[0], 0.0);
  EXPECT_GT(costs[71], 1.0);  // 250,880 rows are more work than one block
  EXPECT_LT(costs[71], 2.0);
}

}  // namespace
}  // namespace espalier::app
