// Initial weights are a function of seed and logical coordinates: any split starts from the same ones.
#include "model/initialise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "espalier/threads.hpp"
#include "model/gather.hpp"
#include "model/parameters.hpp"
#include "support/doubles/optimizers.hpp"
#include "support/doubles/tensor_double.hpp"

namespace espalier::app {
namespace {

/// A group of which one rank is played; it never communicates.
class SomeRank final : public CommunicatorWrapper {
 public:
  SomeRank(int rank, int size) : CommunicatorWrapper(make_self_communicator("tensor")), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }

 private:
  int rank_, size_;
};

ModelShape shape() {
  ModelShape shape;
  shape.layers = 2;
  shape.hidden = 24;
  shape.heads = 4;
  shape.ffn = 96;
  shape.vocab = 37;
  shape.seq_length = 8;
  return shape;
}

using Weights = std::map<std::string, std::vector<float>>;

/// Weights as rank `rank` of `size` holds them, put where they belong; what others hold is 0.
Weights weights(const InitialWeights& how, int rank, int size) {
  const ModelShape model = shape();
  const auto pool = make_thread_pool(1);
  const auto backend = make_reference_backend(*pool);
  SomeRank group(rank, size);
  testing_support::TensorDouble tensor(group);
  const ParameterList list(model);
  const LayerRange all[] = {{0, list.layers()}};
  const auto locals = local_parameters(list, tensor, all);
  const testing_support::ToyAdamW optimizer(DType::f32);
  const auto data = make_single_replica();
  StatePlan plan;
  plan.parameters = locals;
  plan.end_layer = list.layers();
  data->bind(plan, optimizer, *backend);
  initialise(model, how, locals, *data, *backend);
  const auto world = make_self_communicator("world");
  Weights found;
  for (const Parameter& parameter : list.all()) {
    found[std::string(parameter.name)] = gather_logical(parameter, "master", data->state(), locals, *backend, *world);
  }
  return found;
}

double deviation(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

TEST(Initialise, SplitRanksHoldPartsOfTheSameWeights) {
  const InitialWeights how{0.1, EmbeddingInit::normal, 7};
  const Weights whole = weights(how, 0, 1);
  for (int size : {2, 4}) {
    Weights seen;
    for (int rank = 0; rank < size; ++rank) {
      for (const auto& [name, values] : weights(how, rank, size)) {
        auto& sum = seen[name];
        sum.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (values[i] != 0) sum[i] = values[i];
        }
      }
    }
    for (const auto& [name, values] : whole) EXPECT_EQ(seen.at(name), values) << name << " over " << size;
  }
}

TEST(Initialise, DistributionsByRole) {
  const Weights found = weights({0.1, EmbeddingInit::normal, 7}, 0, 1);
  EXPECT_NEAR(deviation(found.at("word_embeddings.weight")), 0.1, 0.01);
  EXPECT_NEAR(deviation(found.at("h.1.mlp.dense_h_to_4h.weight")), 0.1, 0.01);
  EXPECT_NEAR(deviation(found.at("h.1.self_attention.dense.weight")), 0.1 / 2, 0.01);  // 0.1 / sqrt(2 · 2)
  EXPECT_NEAR(deviation(found.at("h.0.mlp.dense_4h_to_h.weight")), 0.1 / 2, 0.01);
  for (const float value : found.at("ln_f.weight")) EXPECT_EQ(value, 1.0f);
  for (const float value : found.at("h.0.input_layernorm.bias")) EXPECT_EQ(value, 0.0f);
  for (const float value : found.at("h.0.self_attention.query_key_value.bias")) EXPECT_EQ(value, 0.0f);
  EXPECT_NE(found.at("h.0.mlp.dense_h_to_4h.weight"), found.at("h.1.mlp.dense_h_to_4h.weight"));
}

TEST(Initialise, SeedAndEmbeddingRule) {
  const Weights one = weights({0.1, EmbeddingInit::normal, 7}, 0, 1);
  const Weights other = weights({0.1, EmbeddingInit::normal, 8}, 0, 1);
  const Weights xavier = weights({0.1, EmbeddingInit::xavier_uniform, 7}, 0, 1);
  EXPECT_NE(one.at("word_embeddings.weight"), other.at("word_embeddings.weight"));
  EXPECT_EQ(one.at("h.0.mlp.dense_h_to_4h.weight"), xavier.at("h.0.mlp.dense_h_to_4h.weight"));
  const float bound = static_cast<float>(std::sqrt(6.0 / (37 + 24)));
  double largest = 0;
  for (const float value : xavier.at("word_embeddings.weight"))
    largest = std::max(largest, std::fabs(static_cast<double>(value)));
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.9 * bound);
}

}  // namespace
}  // namespace espalier::app
