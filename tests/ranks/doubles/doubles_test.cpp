// The second implementations of the strategies keep what the interfaces promise.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "support/doubles/gpipe_double.hpp"
#include "support/doubles/local_sgd.hpp"
#include "support/doubles/optimizers.hpp"
#include "support/doubles/tensor_double.hpp"
#include "support/doubles/toy_model.hpp"
#include "support/mpi_test.hpp"

namespace espalier {
namespace {

using namespace testing_support;

class HostStream final : public Stream {};

TEST(TensorDouble, PiecesTileEveryParameter) {
  const auto world = make_world_communicator();
  TensorDouble tensor(*world);
  HostStream stream;
  for (const Parameter& parameter : toy_parameters()) {
    const Placement place = tensor.place(parameter);
    if (place.dim < 0) {
      EXPECT_EQ(place.copies, Copies::whole);
      EXPECT_EQ(place.local, parameter.shape);
      continue;
    }
    EXPECT_EQ(place.copies, Copies::split);
    EXPECT_EQ(place.local[place.dim], place.end - place.begin);
    std::int64_t rows = place.real_end - place.begin;
    world->finish(world->start_all_reduce(View::vector(&rows, 1, DType::i64), Reduce::sum_rank_order, stream), stream);
    EXPECT_EQ(rows, parameter.shape[place.dim]) << parameter.name;
  }
  ModelShape model;
  model.heads = 2 * world->size();
  model.ffn = 4 * world->size();
  EXPECT_FALSE(tensor.accepts(model));
  model.heads += 1;
  ASSERT_TRUE(tensor.accepts(model));
  EXPECT_NE(tensor.accepts(model)->find("heads"), std::string::npos);
}

TEST(TensorDouble, BordersAreConjugate) {
  const auto world = make_world_communicator();
  TensorDouble tensor(*world);
  HostStream stream;
  const float sum = static_cast<float>(world->size() * (world->size() + 1)) / 2;
  const auto through = [&](bool entering, Pass pass) {
    float data[4];
    std::fill(data, data + 4, static_cast<float>(world->rank() + 1));
    const View x = View::matrix(data, 2, 2, DType::f32);
    const auto border = entering ? tensor.enter(x, {}, pass, stream) : tensor.leave(x, {}, pass, stream);
    tensor.finish(border.request, stream);
    return border.result.as<float>()[3];
  };
  const float own = static_cast<float>(world->rank() + 1);
  EXPECT_EQ(through(true, Pass::forward), own);
  EXPECT_EQ(through(true, Pass::backward), sum);
  EXPECT_EQ(through(false, Pass::forward), sum);
  EXPECT_EQ(through(false, Pass::backward), own);
}

/// Runs the lists of all stages side by side; a send puts a message down that the receive must find.
void run_lists(const GpipeDouble& pipeline, Mode mode, int micro_batches) {
  std::vector<std::vector<Instruction>> lists;
  for (int s = 0; s < pipeline.stages(); ++s) lists.push_back(pipeline.schedule(mode, s, micro_batches));
  std::multiset<std::tuple<Do, int, int, int>> messages;  // what, micro-batch, from, to
  std::vector<std::size_t> at(lists.size());
  std::vector<std::map<Do, std::vector<int>>> did(lists.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < pipeline.stages(); ++s) {
      const auto stage = static_cast<std::size_t>(s);
      for (; at[stage] < lists[stage].size(); ++at[stage], moved = true) {
        const Instruction& now = lists[stage][at[stage]];
        if (now.what == Do::send_activation || now.what == Do::send_gradient) {
          messages.insert({now.what, now.micro_batch, s, now.peer});
        } else if (now.what == Do::receive_activation || now.what == Do::receive_gradient) {
          const Do sent = now.what == Do::receive_activation ? Do::send_activation : Do::send_gradient;
          const auto message = messages.find({sent, now.micro_batch, now.peer, s});
          if (message == messages.end()) break;
          messages.erase(message);
        } else {
          did[stage][now.what].push_back(now.micro_batch);
        }
      }
    }
  }
  EXPECT_TRUE(messages.empty());
  std::vector<int> ascending;
  for (int m = 0; m < micro_batches; ++m) ascending.push_back(m);
  for (std::size_t s = 0; s < lists.size(); ++s) {
    EXPECT_EQ(at[s], lists[s].size()) << "stage " << s << " waits for ever";
    EXPECT_EQ(did[s][Do::forward], ascending);
    EXPECT_EQ(did[s][Do::backward], mode == Mode::train ? ascending : std::vector<int>{});
    EXPECT_EQ(did[s][Do::step].size(), mode == Mode::train ? 1u : 0u);
  }
}

TEST(GpipeDouble, ListsMeetEachOther) {
  for (int stages : {1, 2, 4}) {
    const GpipeDouble pipeline(stages);
    for (int m : {1, 2, 7}) {
      run_lists(pipeline, Mode::train, m);
      run_lists(pipeline, Mode::forward_only, m);
    }
  }
}

TEST(GpipeDouble, CutsByCost) {
  EXPECT_EQ(GpipeDouble(2).cut(std::vector<double>{1, 1, 1, 1}), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(GpipeDouble(2).cut(std::vector<double>{3, 1, 1, 1}), (std::vector<int>{0, 1, 4}));
  EXPECT_EQ(GpipeDouble(3).cut(std::vector<double>{0, 0, 9}), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_THROW(GpipeDouble(3).cut(std::vector<double>{1, 1}), ConfigError);
}

TEST(LocalSgd, RanksDriftAndMeetEveryHSteps) {
  const auto world = make_world_communicator();
  const std::vector<LocalParameter> locals = whole(toy_parameters());
  PlainBackend backend;
  ToyAdamW optimizer(DType::bf16);
  LocalSgd strategy(*world, 3);
  StatePlan plan;
  plan.parameters = locals;
  plan.precision = optimizer.precision();
  plan.end_layer = 4;
  strategy.bind(plan, optimizer, backend);
  HostStream stream;
  fill_weights(strategy, locals, stream);
  const auto spread = [&] {  // largest difference between ranks of any true weight or moment
    double largest = 0;
    for (const StatePiece& piece : strategy.state()) {
      std::vector<float> high(static_cast<std::size_t>(piece.data.elements())), low = high;
      for (std::size_t i = 0; i < high.size(); ++i) {
        high[i] = load(piece.data, static_cast<std::int64_t>(i));
        low[i] = -high[i];
      }
      for (auto* values : {&high, &low}) {
        const View view = View::vector(values->data(), std::ssize(*values), DType::f32);
        world->finish(world->start_all_reduce(view, Reduce::max, stream), stream);
      }
      for (std::size_t i = 0; i < high.size(); ++i) largest = std::max(largest, double{high[i]} + double{low[i]});
    }
    return largest;
  };
  const auto step = [&](int number) {
    write_gradients(strategy, locals, 0, world->rank(), number, stream);
    strategy.reduce(Do::reduce_gradients, stream);
    strategy.step(optimizer, {1e-2, nullptr, nullptr, number + 1}, stream);
  };
  EXPECT_TRUE(strategy.replicas_equal());
  for (int round = 0; round < 2; ++round) {
    for (int s = 0; s < 2; ++s) {
      step(round * 3 + s);
      EXPECT_FALSE(strategy.replicas_equal());
      EXPECT_GT(spread(), 1e-3);
    }
    step(round * 3 + 2);
    EXPECT_TRUE(strategy.replicas_equal());
    EXPECT_EQ(spread(), 0.0);
  }
  step(6);
  EXPECT_GT(spread(), 1e-3);
  strategy.sync(stream);
  EXPECT_EQ(spread(), 0.0);
  EXPECT_TRUE(strategy.replicas_equal());
}

/// Gradients are multiplied by the number of ranks, squares divided by it: equal gradients on all ranks give the norm
/// of one rank's mean gradient under a factor that divides by all samples.
TEST(LocalSgd, NormAndStepAreThoseOfARankAlone) {
  const auto world = make_world_communicator();
  const std::vector<LocalParameter> locals = whole(toy_parameters());
  PlainBackend backend;
  ToyAdamW optimizer(DType::f32);
  LocalSgd strategy(*world, 2);
  StatePlan plan;
  plan.parameters = locals;
  plan.precision = optimizer.precision();
  plan.end_layer = 4;
  strategy.bind(plan, optimizer, backend);
  HostStream stream;
  write_gradients(strategy, locals, 0, 0, 0, stream);
  strategy.reduce(Do::reduce_gradients, stream);
  std::vector<double> slots(locals.size(), 0.0);
  strategy.squares(slots.data(), stream);
  world->finish(world->start_all_reduce(View::vector(slots.data(), std::ssize(slots), DType::f64),
                                        Reduce::sum_rank_order, stream),
                stream);
  for (std::size_t p = 0; p < locals.size(); ++p) {
    double expected = 0;
    for (std::int64_t i = 0; i < locals[p].parameter.shape.elements(); ++i) {
      const double g = world->size() * double{toy_gradient(static_cast<int>(p), i, 0, 0, 0)};
      expected += g * g;
    }
    EXPECT_NEAR(slots[p], expected, 1e-5 * expected);
  }
}

}  // namespace
}  // namespace espalier
