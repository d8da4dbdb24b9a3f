#pragma once

#include "espalier/testing/kernel_case.hpp"

namespace espalier::testing {

class NormSuite : public KernelSuite {
 protected:
  static constexpr double kEps = static_cast<double>(1e-5f);

  /// Statistics of one row in FP64.
  struct Row {
    double mean = 0, rstd = 0;
    Row(const Operand& src, std::int64_t row) {
      const std::int64_t n = src.view().cols;
      double variance = 0;
      for (std::int64_t c = 0; c < n; ++c) mean += src(row, c) / static_cast<double>(n);
      for (std::int64_t c = 0; c < n; ++c)
        variance += (src(row, c) - mean) * (src(row, c) - mean) / static_cast<double>(n);
      rstd = 1 / std::sqrt(variance + kEps);
    }
  };

  /// Forward and backward of one shape; grad_src lies on grad_dst's memory when `in_place`.
  void check(std::int64_t tokens, std::int64_t hidden, Placement placement, bool with_residual, bool in_place) {
    SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(hidden) + ", offset " +
                 std::to_string(placement.offset) + ", residual " + std::to_string(with_residual));
    const Reason reason = kernels_.norm->supports(dtype(), hidden);
    ASSERT_FALSE(reason.has_value()) << *reason;
    Operand src = working(tokens, hidden, placement);
    Operand weight = working(1, hidden, placement);
    Operand bias = working(1, hidden, placement);
    Operand dst = working(tokens, hidden, placement);
    Operand mean = f32(1, tokens);
    Operand rstd = f32(1, tokens);
    src.random(1, -1, 2);
    weight.random(2, 0.5, 1.5);
    bias.random(3);
    kernels_.norm->forward({src, weight, bias, dst, mean, rstd, 1e-5f}, stream());

    Operand grad_dst = working(tokens, hidden, placement);
    Operand residual = working(tokens, hidden, placement);
    Operand separate = working(tokens, hidden, placement);
    Operand& grad_src = in_place ? grad_dst : separate;
    Operand grad_weight = f32(1, hidden, placement);
    Operand grad_bias = f32(1, hidden, placement);
    grad_dst.random(4);
    residual.random(5);
    const auto n = static_cast<std::size_t>(hidden);
    std::vector<double> y, y_size, means, rstds, dx, dx_size, dw(n), dw_size(n, 1), db(n), db_size(n, 1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const Row row(src, t);
      means.push_back(row.mean);
      rstds.push_back(row.rstd);
      double mean_g = 0;
      double mean_gx = 0;
      const auto normal = [&](std::int64_t c) { return (src(t, c) - row.mean) * row.rstd; };
      for (std::int64_t c = 0; c < hidden; ++c) {
        const double g = grad_dst(t, c) * weight[c];
        mean_g += g / static_cast<double>(hidden);
        mean_gx += g * normal(c) / static_cast<double>(hidden);
        const auto i = static_cast<std::size_t>(c);
        dw[i] += grad_dst(t, c) * normal(c);
        db[i] += grad_dst(t, c);
        dw_size[i] += std::abs(grad_dst(t, c)) * (row.rstd + std::abs(normal(c)));
        db_size[i] += std::abs(grad_dst(t, c));
        y.push_back(normal(c) * weight[c] + bias[c]);
        y_size.push_back(1 + row.rstd + std::abs(normal(c)));
      }
      for (std::int64_t c = 0; c < hidden; ++c) {
        const double g = grad_dst(t, c) * weight[c];
        dx.push_back(row.rstd * (g - mean_g - normal(c) * mean_gx) + (with_residual ? residual(t, c) : 0));
        dx_size.push_back(1 + row.rstd * (3 + row.rstd));
      }
    }
    expect_close("dst", dst, y, y_size);
    expect_close("mean", mean, means);
    expect_close("rstd", rstd, rstds);
    std::vector<double> dw_twice, db_twice;
    for (std::size_t i = 0; i < n; ++i) dw_twice.push_back(2 * dw[i]);
    for (std::size_t i = 0; i < n; ++i) db_twice.push_back(2 * db[i]);
    const View none;
    LayerNormGradient args{grad_dst,    src,       weight, mean, rstd, separate, with_residual ? residual.view() : none,
                           grad_weight, grad_bias, false};
    kernels_.norm->backward(args, stream());
    expect_close("grad_weight", grad_weight, dw, dw_size);
    expect_close("grad_bias", grad_bias, db, db_size);
    args.accumulate = true;
    args.grad_src = grad_src;
    kernels_.norm->backward(args, stream());
    expect_close("grad_src", grad_src, dx, dx_size);
    expect_close("grad_weight, added", grad_weight, dw_twice, dw_size);
    expect_close("grad_bias, added", grad_bias, db_twice, db_size);
  }
};

TEST_P(NormSuite, AnyHiddenSizeAndAlignment) {  // K14; offsets of one, two and four elements are 2 to 16 bytes
  for (const std::int64_t hidden : {1, 3, 64, 1000, 1024, 14336, 65536}) {
    for (const Placement placement : {Placement{0, 0}, Placement{1, 0}, Placement{2, 3}, Placement{4, 0}}) {
      check(hidden > 2000 ? 2 : 5, hidden, placement, false, false);
    }
  }
}

TEST_P(NormSuite, SizesAroundVectors) {
  for (const std::int64_t hidden : kSizes) check(3, hidden, {1, 1}, true, true);
  for (const std::int64_t tokens : kSizes) check(tokens, 65, {}, true, false);
}

TEST_P(NormSuite, ResidualMayLieOnTheResult) {
  Operand src = working(4, 33), weight = working(1, 33), grad_dst = working(4, 33), dx = working(4, 33);
  Operand both = working(4, 33), mean = f32(1, 4), rstd = f32(1, 4), dw = f32(1, 33), db = f32(1, 33);
  src.random(1);
  weight.random(2);
  grad_dst.random(3);
  both.random(4);
  rstd.fill(1.5);
  Operand residual = working(4, 33);
  residual.random(4);
  kernels_.norm->backward({grad_dst, src, weight, mean, rstd, dx, residual, dw, db, false}, stream());
  kernels_.norm->backward({grad_dst, src, weight, mean, rstd, both, both, dw, db, false}, stream());
  EXPECT_EQ(both.read(), dx.read());
}

TEST_P(NormSuite, StatisticsMayBeLeftOut) {
  Operand src = working(3, 65), weight = working(1, 65), bias = working(1, 65), dst = working(3, 65),
          same = working(3, 65);
  Operand mean = f32(1, 3), rstd = f32(1, 3);
  src.random(1);
  weight.random(2);
  bias.random(3);
  kernels_.norm->forward({src, weight, bias, dst, mean, rstd, 1e-5f}, stream());
  kernels_.norm->forward({src, weight, bias, same, {}, {}, 1e-5f}, stream());
  EXPECT_EQ(same.read(), dst.read());
}

TEST_P(NormSuite, LargeMeanDoesNotCancel) {
  // Values 256 and 258, exact in every type: variance 1. E[x²] − mean² in FP32 would be off by whole units of 2^-7.
  Operand src = working(2, 1000), weight = working(1, 1000), bias = working(1, 1000), dst = working(2, 1000);
  std::vector<double> values, want;
  for (int i = 0; i < 2000; ++i) {
    values.push_back(i % 2 == 0 ? 256 : 258);
    want.push_back((i % 2 == 0 ? -1 : 1) / std::sqrt(1 + kEps));
  }
  src.set(values);
  weight.fill(1);
  kernels_.norm->forward({src, weight, bias, dst, {}, {}, 1e-5f}, stream());
  expect_close("dst", dst, want);
}

TEST_P(NormSuite, NanStaysInItsRow) {
  Operand src = working(3, 65), weight = working(1, 65), bias = working(1, 65), dst = working(3, 65);
  std::vector<double> values(3 * 65, 0.5);
  values[65 + 7] = std::numeric_limits<double>::quiet_NaN();
  src.set(values);
  weight.fill(1);
  kernels_.norm->forward({src, weight, bias, dst, {}, {}, 1e-5f}, stream());
  const std::vector<double> got = dst.read();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / 65 == 1) << i;
}

TEST_P(NormSuite, BackwardIsTheDerivativeOfForward) {
  const std::int64_t hidden = 13;
  Operand src = working(1, hidden), weight = working(1, hidden), bias = working(1, hidden), dst = working(1, hidden);
  Operand grad_dst = working(1, hidden), grad_src = working(1, hidden), mean = f32(1, 1), rstd = f32(1, 1);
  Operand dw = f32(1, hidden), db = f32(1, hidden);
  src.random(1);
  weight.random(2);
  grad_dst.random(3);
  kernels_.norm->forward({src, weight, bias, dst, mean, rstd, 1e-5f}, stream());
  kernels_.norm->backward({grad_dst, src, weight, mean, rstd, grad_src, {}, dw, db, false}, stream());
  const auto objective = [&](std::vector<double> x) {
    double m = 0, v = 0, sum = 0;
    for (const double value : x) m += value / hidden;
    for (const double value : x) v += (value - m) * (value - m) / hidden;
    for (std::int64_t c = 0; c < hidden; ++c) {
      sum += grad_dst[c] * weight[c] * (x[static_cast<std::size_t>(c)] - m) / std::sqrt(v + kEps);
    }
    return sum;
  };
  std::vector<double> want;
  for (std::size_t i = 0; i < hidden; ++i) {
    std::vector<double> up = src.values(), down = up;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    want.push_back((objective(up) - objective(down)) / 2e-5);
  }
  expect_close("difference quotients", grad_src, want, std::vector<double>(hidden, 10.0));
}

TEST_P(NormSuite, SameBitsWithAnyThreads) {
  expect_same_with_any_threads([this] {
    Operand src = working(130, 257), weight = working(1, 257), grad = working(130, 257);
    Operand mean = f32(1, 130), rstd = f32(1, 130), dw = f32(1, 257);
    Operand db = f32(1, 257), dst = working(130, 257);
    src.random(1);
    weight.random(2);
    grad.random(3);
    kernels_.norm->forward({src, weight, weight, dst, mean, rstd, 1e-5f}, stream());
    kernels_.norm->backward({grad, src, weight, mean, rstd, grad, {}, dw, db, false}, stream());
    std::vector<double> all = grad.read();
    for (Operand* operand : {&dst, &dw, &db}) {
      const std::vector<double> more = operand->read();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  });
}

}  // namespace espalier::testing
