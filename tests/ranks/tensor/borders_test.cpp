// Borders of sharded regions, their counted bytes in a model, and what is refused.
#include "ranks/tensor/layout_run.hpp"
#include "support/doubles/host.hpp"
#include "support/doubles/plain_backend.hpp"
#include "support/mpi_test.hpp"
#include "support/traffic_run.hpp"
#include "tensor.hpp"

namespace espalier::testing_support {
namespace {

class Borders : public testing::TestWithParam<bool> {
 protected:
  Borders() : host_(backend_, nullptr, world_->split(0, world_->rank(), "tensor")) {}
  parallel_tensor::Tensor make(bool sp, const char* reduction = "rank_order") {
    config_ = std::make_unique<TestConfig>(
        parallel_tensor::kOptions,
        std::map<std::string, ConfigValue::Data>{
            {"sequence_parallel", sp}, {"overlap", GetParam()}, {"reduction", std::string(reduction)}});
    return parallel_tensor::Tensor(config_->view(), host_);
  }
  Stream& stream() { return backend_.device().lane(Lane::compute); }

  const std::unique_ptr<Communicator> world_ = make_world_communicator();
  PlainBackend backend_;
  TestHost host_;
  std::unique_ptr<TestConfig> config_;
};

/// [rows, 2] with 100 · rank + row + offset.
std::vector<float> numbered(std::int64_t rows, int rank, float offset = 0) {
  std::vector<float> values(static_cast<std::size_t>(2 * rows));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(100 * rank) + static_cast<float>(i / 2) + offset;
  }
  return values;
}

TEST_P(Borders, WithoutSequenceParallelismSumsAreWhole) {
  auto tensor = make(false);
  const int n = world_->size();
  EXPECT_EQ(tensor.rows(12, Region::outside), 12);
  EXPECT_EQ(tensor.first_row(12), 0);
  for (const bool entering : {true, false}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      auto values = numbered(3, world_->rank());
      const View x = View::matrix(values.data(), 3, 2, DType::f32);
      const auto border = entering ? tensor.enter(x, {}, pass, stream()) : tensor.leave(x, {}, pass, stream());
      tensor.finish(border.request, stream());
      ASSERT_EQ(border.result.data, x.data);
      const bool sums = entering == (pass == Pass::backward);
      const float expected = sums ? 100.0f * static_cast<float>(n * (n - 1) / 2) + 2.0f * static_cast<float>(n)
                                  : 100.0f * static_cast<float>(world_->rank()) + 2.0f;
      EXPECT_EQ(values[4], expected);
    }
  }
}

TEST_P(Borders, WithSequenceParallelismRowsTravel) {
  auto tensor = make(true);
  const int n = world_->size(), rank = world_->rank();
  const std::int64_t tokens = 2 * n;
  EXPECT_EQ(tensor.rows(tokens, Region::outside), n == 1 ? tokens : 2);
  EXPECT_EQ(tensor.rows(tokens, Region::inside), tokens);
  EXPECT_EQ(tensor.first_row(tokens), n == 1 ? 0 : 2 * rank);
  // Tokens that do not divide stay whole.
  EXPECT_EQ(tensor.rows(tokens + 1, Region::outside), tokens + 1);
  EXPECT_EQ(tensor.first_row(tokens + 1), 0);
  if (n == 1) return;
  for (const bool entering : {true, false}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const bool gathers = entering == (pass == Pass::forward);
      auto values = numbered(gathers ? 2 : tokens, rank);
      std::vector<float> scratch(static_cast<std::size_t>(2 * (gathers ? tokens : 2)));
      const View x = View::matrix(values.data(), gathers ? 2 : tokens, 2, DType::f32);
      const View to = View::matrix(scratch.data(), gathers ? tokens : 2, 2, DType::f32);
      const auto border = entering ? tensor.enter(x, to, pass, stream()) : tensor.leave(x, to, pass, stream());
      tensor.finish(border.request, stream());
      ASSERT_EQ(border.result.data, to.data);
      if (gathers) {
        for (int r = 0; r < n; ++r) {
          EXPECT_EQ(scratch[static_cast<std::size_t>(4 * r + 2)], 100.0f * static_cast<float>(r) + 1.0f);
        }
      } else {
        const float row = static_cast<float>(2 * rank + 1);
        EXPECT_EQ(scratch[2], 100.0f * static_cast<float>(n * (n - 1) / 2) + row * static_cast<float>(n));
      }
    }
  }
  // A gradient over whole tokens would be counted once a rank.
  auto values = numbered(tokens, rank);
  EXPECT_THROW(tensor.enter(View::matrix(values.data(), tokens, 2, DType::f32), {}, Pass::backward, stream()),
               ShapeError);
}

TEST_P(Borders, OverlapLeavesTheBackwardSumOpen) {
  if (world_->size() == 1) return;
  auto tensor = make(false);
  auto values = numbered(3, world_->rank());
  const View x = View::matrix(values.data(), 3, 2, DType::f32);
  const auto border = tensor.enter(x, {}, Pass::backward, stream());
  EXPECT_EQ(static_cast<bool>(border.request), GetParam());
  tensor.finish(border.request, stream());
}

TEST_P(Borders, VectorsOfTheLoss) {
  auto tensor = make(true, "library");
  const int n = world_->size();
  float values[2] = {static_cast<float>(world_->rank()), 1.0f};
  const View x = View::vector(values, 2, DType::f32);
  tensor.finish(tensor.reduce(x, Reduce::max, stream()), stream());
  EXPECT_EQ(values[0], static_cast<float>(n - 1));
  tensor.finish(tensor.reduce(x, Reduce::sum_rank_order, stream()), stream());
  EXPECT_EQ(values[1], static_cast<float>(n));
  if (n == 1) return;
  EXPECT_NE(host_.lines.back().find("library"), std::string::npos) << host_.lines.back();
}

// Case X18, and what sequence parallelism asks for.
TEST_P(Borders, RefusalsNameWhatDoesNotDivide) {
  ModelShape model = small_model();
  model.layers = 6;
  const int n = world_->size();
  EXPECT_FALSE(make(false).accepts(model));
  model.heads = 12 * n + 1;
  if (n == 1) return;
  ASSERT_TRUE(make(false).accepts(model));
  EXPECT_NE(make(false).accepts(model)->find("heads"), std::string::npos);
  model = small_model();
  model.ffn += 1;
  EXPECT_NE(make(false).accepts(model)->find("ffn"), std::string::npos);
  model = small_model();
  host_.run.batch.micro_batches = {4, 2, 1, 3};
  EXPECT_FALSE(make(true).accepts(model));
  model.seq_length = 13;
  EXPECT_FALSE(make(false).accepts(model));
  ASSERT_TRUE(make(true).accepts(model));
  EXPECT_NE(make(true).accepts(model)->find(" · 13 tokens"), std::string::npos) << *make(true).accepts(model);
}

INSTANTIATE_TEST_SUITE_P(Overlap, Borders, testing::Bool(),
                         [](const auto& test) { return test.param ? std::string("overlap") : std::string("at_once"); });

// The traffic that the plugin's README states, counted.
TEST(TensorCost, BytesOfAStep) {
  const auto world = make_world_communicator();
  ModelShape model = small_model();
  model.hidden = 192;  // shards need no padding
  model.ffn = 768;
  model.vocab = 192;
  for (const bool sp : {false, true}) {
    Layout layout;
    layout.tensor = world->size();
    layout.sequence_parallel = sp;
    LayoutRun run(*world, model, layout);
    run.step(0);
    run.counters().reset();
    run.step(1);
    TrafficCase at;
    at.tensor = layout.tensor;
    at.sequence_parallel = sp;
    at.micro_batches = static_cast<int>(layout.global / layout.micro);
    const Traffic formula = expected_traffic(traffic_facts(run, at));
    EXPECT_EQ(counted_bytes(run.counters(), "tensor"), formula.tensor_total()) << at;
    EXPECT_EQ(counted_bytes(run.counters(), "tensor", Verb::all_reduce) > 0, layout.tensor > 1);
    EXPECT_EQ(counted_bytes(run.counters(), "tensor", Verb::all_gather) > 0, sp && layout.tensor > 1);
    EXPECT_EQ(counted_bytes(run.counters(), "tensor", Verb::reduce_scatter) > 0, sp && layout.tensor > 1);
  }
}

}  // namespace
}  // namespace espalier::testing_support
