#pragma once

#include "espalier/testing/kernel_case.hpp"

namespace espalier::testing {

class ElementwiseSuite : public KernelSuite {
 protected:
  void SetUp() override {
    KernelSuite::SetUp();
    const Reason reason = kernels_.elementwise->supports(dtype());
    ASSERT_FALSE(reason.has_value()) << *reason;
  }

  static double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.79788456 * x * (1 + 0.044715 * x * x))); }
  static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }  // off by less than 1e-9

  void check_gelu(std::int64_t rows, std::int64_t cols, Placement placement, bool in_place) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols) + ", offset " + std::to_string(placement.offset));
    Operand src = working(rows, cols, placement), bias = working(1, cols, placement);
    Operand dst = working(rows, cols, placement), grad = working(rows, cols, placement);
    Operand grad_src = working(rows, cols, placement);
    src.random(1, -4, 4);
    bias.random(2);
    grad.random(3);
    std::vector<double> y, dx, size;
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const double x = src[i] + bias[i % cols];
      y.push_back(gelu(x));
      dx.push_back(grad[i] * gelu_slope(x));
      size.push_back(1 + x * x);
    }
    Operand& gradient = in_place ? grad : grad_src;
    kernels_.elementwise->bias_gelu_backward(grad, src, bias, gradient, stream());
    expect_close("gelu backward", gradient, dx, size);
    Operand& result = in_place ? src : dst;
    kernels_.elementwise->bias_gelu(src, bias, result, stream());
    expect_close("gelu", result, y, size);
  }

  /// dst = residual + dropout(src + bias), and the backward of its dropout.
  void check_dropout(std::int64_t rows, std::int64_t cols, Placement placement, const Dropout& dropout,
                     bool with_bias) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols) + ", p " + std::to_string(dropout.p));
    Operand src = working(rows, cols, placement), bias = working(1, cols, placement);
    Operand residual = working(rows, cols, placement), dst = working(rows, cols, placement);
    Operand grad = working(rows, cols, placement), grad_src = working(rows, cols, placement);
    src.random(1);
    bias.random(2);
    residual.random(3);
    grad.random(4);
    std::vector<double> y, dx;
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const bool kept = !dropout.active() || dropout.keeps_hidden(i / cols, i % cols);
      const double factor = kept ? (dropout.active() ? 1 / (1 - static_cast<double>(dropout.p)) : 1) : 0;
      y.push_back(residual[i] + factor * (src[i] + (with_bias ? bias[i % cols] : 0)));
      dx.push_back(factor * grad[i]);
    }
    const View given = with_bias ? bias.view() : View{};
    kernels_.elementwise->bias_dropout_add(src, given, residual, dropout, dst, stream());
    expect_close("separate", dst, y);
    kernels_.elementwise->dropout_backward(grad, dropout, grad_src, stream());
    expect_close("backward", grad_src, dx);
    kernels_.elementwise->dropout_backward(grad, dropout, grad, stream());
    expect_close("backward in place", grad, dx);
    kernels_.elementwise->bias_dropout_add(src, given, residual, dropout, residual, stream());
    expect_close("on the residual", residual, y);
    residual.random(3);
    kernels_.elementwise->bias_dropout_add(src, given, residual, dropout, src, stream());
    expect_close("on the source", src, y);
  }
};

TEST_P(ElementwiseSuite, Gelu) {
  for (const std::int64_t n : kSizes) {
    for (const Placement placement : kPlacements) check_gelu(3, n, placement, n % 2 == 0);
  }
  for (const std::int64_t rows : {1, 64, 65, 130}) check_gelu(rows, 5, {}, false);
}

TEST_P(ElementwiseSuite, GeluFarOut) {
  const std::vector<double> x{-1000, -100, -20, -10, -0.0, 0, 10, 20, 100, 1000, std::nan("")};
  const std::vector<double> y{0, 0, 0, 0, 0, 0, 10, 20, 100, 1000, std::nan("")};
  const std::vector<double> slope{0, 0, 0, 0, 0.5, 0.5, 1, 1, 1, 1, std::nan("")};
  const auto n = static_cast<std::int64_t>(x.size());
  Operand src = working(1, n), bias = working(1, n), dst = working(1, n), ones = working(1, n), grad = working(1, n);
  src.set(x);
  ones.fill(1);
  kernels_.elementwise->bias_gelu(src, bias, dst, stream());
  kernels_.elementwise->bias_gelu_backward(ones, src, bias, grad, stream());
  expect_close("gelu", dst, y);
  expect_close("derivative", grad, slope);
}

TEST_P(ElementwiseSuite, ResidualAdds) {
  Dropout dropout{.p = 0.1f, .key = make_key(3, RandomUse::dropout, 2), .first_sample = 7, .first_token = 5, .seq = 9};
  for (const std::int64_t n : kSizes) {
    for (const Placement placement : kPlacements) check_dropout(4, n, placement, {}, n % 2 == 1);
    check_dropout(23, n, {1, 3}, dropout, n % 2 == 0);
  }
  dropout.first_sample = (std::int64_t{5} << 32) + 1;
  dropout.p = 0.5f;
  check_dropout(130, 64, {}, dropout, true);
}

TEST_P(ElementwiseSuite, EmbeddingOfARangeOfIds) {
  for (const Placement placement : kPlacements) {
    for (const std::int64_t hidden : {1, 3, 64, 65, 1000}) {
      const std::vector<double> ids{10, 14, 9, 15, 12, 10, 0, 100000};
      Operand id = i32(ids), table = working(5, hidden, placement), dst = working(8, hidden, placement);
      Operand grad = working(8, hidden, placement), grad_table = f32(5, hidden, placement);
      table.random(1);
      grad.random(2);
      grad_table.random(3);
      std::vector<double> rows, sums = grad_table.values();
      for (std::int64_t t = 0; t < 8; ++t) {
        const auto entry = static_cast<std::int64_t>(ids[static_cast<std::size_t>(t)]) - 10;
        const bool own = entry >= 0 && entry < 5;
        for (std::int64_t c = 0; c < hidden; ++c) {
          rows.push_back(own ? table(entry, c) : 0);
          if (own) sums[static_cast<std::size_t>(entry * hidden + c)] += grad(t, c);
        }
      }
      kernels_.elementwise->embedding(id, table, 10, dst, stream());
      EXPECT_EQ(dst.read(), rows);
      kernels_.elementwise->embedding_backward(id, grad, 10, grad_table, stream());
      expect_close("gradient of the table", grad_table, sums, std::vector<double>(sums.size(), 3.0));
    }
  }
}

TEST_P(ElementwiseSuite, MicroBatchesOfOneTokenAddUpInFp32) {  // P09
  Operand id = i32(std::vector<double>{0}), grad = working(1, 65), table = f32(1, 65);
  grad.fill(1);
  for (int micro = 0; micro < 512; ++micro) kernels_.elementwise->embedding_backward(id, grad, 0, table, stream());
  EXPECT_EQ(table.read(), std::vector<double>(65, 512.0));
}

TEST_P(ElementwiseSuite, AddAndScaleOfAnyTypes) {  // exact: FP32 arithmetic, one rounding
  for (const DType other : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
      for (const std::int64_t n : kSizes) {
        const Placement placement = kPlacements[n % 3];
        Operand a = working(3, n, placement), b(*backend_, other, 3, n, placement), dst(*backend_, to, 3, n, placement);
        a.random(1);
        b.random(2);
        std::vector<double> sum, converted, scaled;
        for (std::int64_t i = 0; i < 3 * n; ++i) {
          sum.push_back(rounded(to, static_cast<float>(a[i]) + static_cast<float>(b[i])));
          converted.push_back(rounded(to, a[i]));
          scaled.push_back(rounded(to, static_cast<float>(a[i]) * 0.3f));
        }
        kernels_.elementwise->add(a, {}, dst, stream());
        EXPECT_EQ(dst.read(), converted);
        kernels_.elementwise->scale(a, 0.3f, dst, stream());
        EXPECT_EQ(dst.read(), scaled);
        kernels_.elementwise->add(a, b, dst, stream());
        EXPECT_EQ(dst.read(), sum);
        if (to == dtype()) {
          kernels_.elementwise->add(a, b, a, stream());
          EXPECT_EQ(a.read(), sum) << "in place";
        }
      }
    }
  }
}

TEST_P(ElementwiseSuite, EveryRoundingOfStorage) {
  // Halves, ties, overflow and NaN through a conversion: what dtype.hpp says, to the bit.
  std::vector<double> values{65504,       65519.99,        65520,       -65536,         1e30,
                             0x1p-24,     0x1p-25,         0x1.8p-24,   0x1p-126,       -0.0,
                             1 + 0x1p-11, 1 + 3 * 0x1p-11, 1 + 0x1p-8,  1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-20,
                             INFINITY,    -INFINITY,       std::nan("")};
  for (std::int64_t i = 0; i < 400; ++i) values.push_back(std::exp2(random_value(9, i, -30, 30)));
  const auto n = static_cast<std::int64_t>(values.size());
  Operand src = f32(1, n), dst = working(1, n);
  src.set(values);
  kernels_.elementwise->add(src, {}, dst, stream());
  const std::vector<double> got = dst.read();
  for (std::int64_t i = 0; i < n; ++i) {
    const double want = rounded(dtype(), src[i]);
    const double x = got[static_cast<std::size_t>(i)];
    EXPECT_TRUE(std::isnan(want) ? std::isnan(x) : x == want) << src[i] << " became " << x << ", not " << want;
  }
}

}  // namespace espalier::testing
