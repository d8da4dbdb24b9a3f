// The split vocabulary: sizes that do not divide, padding, uniform logits, logits of split heads.
#include <cmath>

#include "espalier/backend.hpp"
#include "model/layout.hpp"
#include "model/roles.hpp"
#include "ranks/tensor/layout_run.hpp"
#include "support/mpi_test.hpp"

namespace espalier::testing_support {
namespace {

class Vocabulary : public testing::Test {
 protected:
  /// Calls body with the world cut into tensor groups of 2, then with one of 4.
  template <class Body>
  void for_each(Layout layout, Body&& body) {
    for (const int tensor : {2, 4}) {
      layout.tensor = tensor;
      SCOPED_TRACE(testing::PrintToString(layout));
      const auto part = world_->split(world_->rank() / tensor, world_->rank(), "world");
      body(*part, layout);
    }
  }
  const std::unique_ptr<Communicator> world_ = make_world_communicator();
};

double mean_loss(const Verdict& verdict) { return verdict.loss_sum / static_cast<double>(verdict.tokens); }

/// Calls body(element) for each element of a local piece of state that is padding.
template <class Body>
std::int64_t for_padding(LayoutRun& run, std::string_view state, Body&& body) {
  std::int64_t count = 0;
  for (const StatePiece& piece : run.data().state()) {
    if (piece.state != state) continue;
    const LocalParameter& local = run.executor().parameters()[static_cast<std::size_t>(piece.parameter)];
    for_each_run(local, piece, [&](const Run& part) {
      if (part.logical >= 0) return;
      for (std::int64_t i = 0; i < part.length; ++i) body(piece.data.as<float>()[part.local - piece.begin + i]);
      count += part.length;
    });
  }
  return count;
}

// Case X06. With 5 ids and 4 ranks the last rank has none of its own.
TEST_F(Vocabulary, SizesThatDoNotDivide) {
  for (const std::int64_t vocab : {13, 5}) {
    for (const bool tied : {true, false}) {
      ModelShape model = small_model();
      model.vocab = model.tokenizer_vocab = vocab;
      model.tied_head = tied;
      for_each({}, [&](Communicator& part, const Layout& layout) {
        LayoutRun run(part, model, layout);
        const auto alone = run_alone(model, layout);
        const int steps = vocab == 13 && tied ? 20 : 3;
        for (int s = 0; s < steps; ++s) {
          const double truth = mean_loss(alone->step(s));
          ASSERT_NEAR(mean_loss(run.step(s)), truth, 1e-5 * truth) << "step " << s;
        }
        const auto zero = [](float value) { EXPECT_EQ(value, 0.0f); };
        double padding = static_cast<double>(for_padding(run, "master", zero));
        for_padding(run, "moment2", zero);
        run.world().run({Verb::all_reduce, View::vector(&padding, 1, DType::f64), View::vector(&padding, 1, DType::f64),
                         Reduce::sum_rank_order, 0, 0},
                        run.stream());
        const std::int64_t rows = (vocab + layout.tensor - 1) / layout.tensor * layout.tensor - vocab;
        EXPECT_EQ(padding, static_cast<double>(rows * model.hidden * (tied ? 1 : 2)));
      });
    }
  }
}

TEST_F(Vocabulary, PaddingHasNoGradient) {
  ModelShape model = small_model();
  model.vocab = model.tokenizer_vocab = 13;
  Layout like;
  like.probe = true;
  for_each(like, [&](Communicator& part, const Layout& layout) {
    LayoutRun run(part, model, layout);
    run.step(0);
    for_padding(run, GradientProbe::kState, [](float value) { EXPECT_EQ(value, 0.0f); });
  });
}

// Case X08: a wrong split loss is too high by log(size).
TEST_F(Vocabulary, UniformLogits) {
  ModelShape model = small_model();
  model.vocab = model.tokenizer_vocab = 8;
  Layout like;
  like.std = 0;
  EXPECT_NEAR(mean_loss(run_alone(model, like)->step(0)), 2.0794, 5e-5);
  for_each(like, [&](Communicator& part, const Layout& layout) {
    EXPECT_NEAR(mean_loss(LayoutRun(part, model, layout).step(0)), 2.0794, 5e-5);
  });
}

/// Own columns of every micro-batch.
class Columns final : public LogitsSink {
 public:
  void logits(int micro_batch, std::int64_t first_token, std::int64_t first_id, const View& logits) override {
    for (std::int64_t r = 0; r < logits.rows; ++r) {
      for (std::int64_t c = 0; c < logits.cols; ++c) {
        values[{micro_batch, first_token + r, first_id + c}] = logits.row<float>(r)[c];
      }
    }
  }
  std::map<std::tuple<int, std::int64_t, std::int64_t>, float> values;
};

// Case K02: every rank has the slopes of its own heads.
TEST_F(Vocabulary, SlopesFollowTheHeads) {
  const double expected[] = {std::exp2(-7), std::exp2(-8), 0.707107, 0.353553, 0.176777, 0.088388};
  Layout like;
  like.probe = true;
  for_each(like, [&](Communicator& part, const Layout& layout) {
    LayoutRun run(part, small_model(), layout);
    const OwnWidths own = own_widths(run.facts().model, run.parameters(), run.tensor());
    EXPECT_EQ(own.heads, 12 / layout.tensor);
    EXPECT_EQ(own.first_head, own.heads * run.tensor().rank());
    float slopes[12];
    alibi_slopes(12, slopes);
    for (std::int64_t h = std::max<std::int64_t>(own.first_head, 6); h < own.first_head + own.heads; ++h) {
      EXPECT_NEAR(slopes[h], expected[h - 6], 1e-6);
    }
    const auto alone = run_alone(small_model(), layout);
    Columns found, truth;
    run.executor().watch_logits(&found);
    alone->executor().watch_logits(&truth);
    run.step(0);
    alone->step(0);
    std::size_t compared = 0;
    for (const auto& [at, value] : found.values) {
      const auto other = truth.values.find(at);
      if (other == truth.values.end()) continue;  // padding
      ASSERT_NEAR(value, other->second, 2e-6);
      ++compared;
    }
    EXPECT_GE(compared, truth.values.size() / static_cast<std::size_t>(layout.tensor) - 8 * 12 * 4);
  });
}

}  // namespace
}  // namespace espalier::testing_support
