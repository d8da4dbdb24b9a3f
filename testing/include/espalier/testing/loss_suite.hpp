#pragma once

#include "espalier/testing/kernel_case.hpp"

namespace espalier::testing {

class LossSuite : public KernelSuite {
 protected:
  void SetUp() override {
    KernelSuite::SetUp();
    const Reason reason = kernels_.loss->supports(dtype());
    ASSERT_FALSE(reason.has_value()) << *reason;
  }

  /// Cross entropy in FP64, over the first `valid` columns.
  struct Oracle {
    std::vector<double> loss, grad;
    Oracle(const Operand& logits, std::int64_t valid, std::span<const double> targets, double scale) {
      for (std::int64_t t = 0; t < logits.view().rows; ++t) {
        const auto target = static_cast<std::int64_t>(targets[static_cast<std::size_t>(t)]);
        double largest = -INFINITY, sum = 0;
        for (std::int64_t c = 0; c < valid; ++c) largest = std::max(largest, logits(t, c));
        for (std::int64_t c = 0; c < valid; ++c) sum += std::exp(logits(t, c) - largest);
        loss.push_back(target < 0 ? 0 : std::log(sum) - (logits(t, target) - largest));
        for (std::int64_t c = 0; c < logits.view().cols; ++c) {
          const bool counts = target >= 0 && c < valid;
          grad.push_back(counts ? (std::exp(logits(t, c) - largest) / sum - (c == target ? 1 : 0)) * scale : 0);
        }
      }
    }
  };

  /// Every seventh target is masked; the others are spread over the columns.
  static std::vector<double> make_targets(std::int64_t tokens, std::int64_t valid) {
    std::vector<double> targets;
    for (std::int64_t t = 0; t < tokens; ++t)
      targets.push_back(t % 7 == 3 ? -1.0 : static_cast<double>(t * 37 % valid));
    return targets;
  }
};

TEST_P(LossSuite, WholeVocabulary) {
  for (const std::int64_t columns : kSizes) {
    for (const Placement placement : kPlacements) {
      SCOPED_TRACE("columns " + std::to_string(columns) + ", offset " + std::to_string(placement.offset));
      const std::int64_t tokens = columns == 65 ? 130 : 9;
      const std::int64_t valid = columns > 2 ? columns - 2 : columns;  // two columns of padding
      const std::vector<double> targets = make_targets(tokens, valid);
      Operand target = i32(targets), logits = f32(tokens, columns, placement),
              grad = working(tokens, columns, placement);
      Operand row_max = f32(1, tokens), sum_exp = f32(1, tokens), target_logit = f32(1, tokens), loss = f32(1, tokens);
      logits.random(1, -8, 8);
      const Oracle oracle(logits, valid, targets, 0.5);
      LossKernels& kernels = *kernels_.loss;
      kernels.row_max(logits, valid, row_max, stream());
      kernels.exp_sum(logits, valid, row_max, target, 0, sum_exp, target_logit, stream());
      kernels.gradient(logits, valid, row_max, sum_exp, target_logit, target, 0, 0.5f, loss, grad, stream());
      expect_close("loss", loss, oracle.loss, std::vector<double>(oracle.loss.size(), 16.0));
      expect_close("gradient", grad, oracle.grad);
      kernels.gradient(logits, valid, row_max, sum_exp, target_logit, target, 0, 0.5f, {}, logits, stream());
      expect_close("gradient on the logits", logits, oracle.grad);
    }
  }
}

TEST_P(LossSuite, SplitVocabulary) {
  // Two halves of 65 columns, the second with 3 of padding, give what 127 columns give in one piece.
  const std::int64_t tokens = 33, part = 65, valid = 127;
  const std::vector<double> targets = make_targets(tokens, valid);
  Operand whole = f32(tokens, 2 * part), target = i32(targets), loss = f32(1, tokens);
  whole.random(4, -8, 8);
  const Oracle oracle(whole, valid, targets, 1.0);
  Operand row_max = f32(1, tokens), sum_exp = f32(1, tokens), target_logit = f32(1, tokens);
  const View halves[] = {whole.view().col_range(0, part), whole.view().col_range(part, 2 * part)};
  const std::int64_t own_valid[] = {part, valid - part};
  std::vector<double> maxima(tokens, -INFINITY), sums(tokens), logit(tokens);
  for (int half = 0; half < 2; ++half) {
    kernels_.loss->row_max(halves[half], own_valid[half], row_max, stream());
    const std::vector<double> own = row_max.read();
    for (std::size_t t = 0; t < own.size(); ++t) maxima[t] = std::max(maxima[t], own[t]);
  }
  row_max.set(maxima);
  for (int half = 0; half < 2; ++half) {
    kernels_.loss->exp_sum(halves[half], own_valid[half], row_max, target, half * part, sum_exp, target_logit,
                           stream());
    const std::vector<double> own_sums = sum_exp.read(), own_logits = target_logit.read();
    for (std::size_t t = 0; t < own_sums.size(); ++t) {
      sums[t] += own_sums[t];
      logit[t] += own_logits[t];
    }
  }
  sum_exp.set(sums);
  target_logit.set(logit);
  Operand grad = working(tokens, 2 * part);
  for (int half = 0; half < 2; ++half) {
    kernels_.loss->gradient(halves[half], own_valid[half], row_max, sum_exp, target_logit, target, half * part, 1.0f,
                            loss, grad.view().col_range(half * part, (half + 1) * part), stream());
    expect_close("loss", loss, oracle.loss, std::vector<double>(oracle.loss.size(), 16.0));
  }
  expect_close("gradient", grad, oracle.grad);
}

TEST_P(LossSuite, HugeLogitsAndNan) {
  Operand logits = f32(3, 4), target = i32(std::vector<double>{1, 0, 2}), loss = f32(1, 3), grad = working(3, 4);
  Operand row_max = f32(1, 3), sum_exp = f32(1, 3), target_logit = f32(1, 3);
  logits.set(std::vector<double>{1e30, 1e30, -1e30, 0, -3e38, 3e38, 0, 0, 0, std::nan(""), 1, 2});
  kernels_.loss->row_max(logits, 4, row_max, stream());
  kernels_.loss->exp_sum(logits, 4, row_max, target, 0, sum_exp, target_logit, stream());
  kernels_.loss->gradient(logits, 4, row_max, sum_exp, target_logit, target, 0, 1.0f, loss, grad, stream());
  expect_close("loss", loss, std::vector<double>{std::log(2.0), INFINITY, std::nan("")});
  std::vector<double> rows = grad.read();
  for (std::size_t c = 8; c < 12; ++c) EXPECT_TRUE(std::isnan(rows[c])) << "a NaN logit was hidden";
  rows.resize(8);
  EXPECT_EQ(rows, (std::vector<double>{0.5, -0.5, 0, 0, -1, 1, 0, 0}));
}

TEST_P(LossSuite, GradientIsTheDerivativeOfTheLoss) {
  const std::vector<double> targets{2, -1, 0};
  Operand logits = f32(3, 5), target = i32(targets), grad = working(3, 5);
  Operand row_max = f32(1, 3), sum_exp = f32(1, 3), target_logit = f32(1, 3);
  logits.random(5, -2, 2);
  kernels_.loss->row_max(logits, 5, row_max, stream());
  kernels_.loss->exp_sum(logits, 5, row_max, target, 0, sum_exp, target_logit, stream());
  kernels_.loss->gradient(logits, 5, row_max, sum_exp, target_logit, target, 0, 1.0f, {}, grad, stream());
  const auto total = [&](std::vector<double> x) {
    double sum = 0;
    for (std::size_t t = 0; t < 3; ++t) {
      double exponentials = 0;
      for (std::size_t c = 0; c < 5; ++c) exponentials += std::exp(x[t * 5 + c]);
      if (targets[t] >= 0) sum += std::log(exponentials) - x[t * 5 + static_cast<std::size_t>(targets[t])];
    }
    return sum;
  };
  std::vector<double> want;
  for (std::size_t i = 0; i < 15; ++i) {
    std::vector<double> up = logits.values(), down = up;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    want.push_back((total(up) - total(down)) / 2e-5);
  }
  expect_close("difference quotients", grad, want);
}

TEST_P(LossSuite, SumsInFp64) {
  const std::int64_t tokens = 1000;
  std::vector<double> targets = make_targets(tokens, 50);
  Operand loss = f32(1, tokens), target = i32(targets), slots(*backend_, DType::f64, 1, 2);
  loss.random(1, 0, 10);
  slots.set(std::vector<double>{1e6, 3});
  double sum = 0, count = 3;
  for (std::int64_t t = 0; t < tokens; ++t) sum += loss[t];
  for (const double x : targets) count += x >= 0 ? 1 : 0;
  kernels_.loss->accumulate(loss, target, slots, stream());
  const std::vector<double> got = slots.read();
  EXPECT_NEAR(got[0], 1e6 + sum, 1e-8);
  EXPECT_EQ(got[1], count);
}

}  // namespace espalier::testing
