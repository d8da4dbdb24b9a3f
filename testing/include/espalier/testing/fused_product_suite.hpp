#pragma once

#include "espalier/testing/matrix_suite.hpp"

namespace espalier::testing {

/// What a provider may do in the pass of a product (MatrixKernels::fuses), against FP64. Skipped where it does none of
/// it.
class FusedProductSuite : public MatrixSuite {
 protected:
  static constexpr double kRoot2OverPi = 0.79788456, kCube = 0.044715;  // as bias_gelu has them

  static double gelu(double x) { return 0.5 * x * (1 + std::tanh(kRoot2OverPi * x * (1 + kCube * x * x))); }
  static double gelu_derivative(double x) {
    const double t = std::tanh(kRoot2OverPi * x * (1 + kCube * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRoot2OverPi * (1 + 3 * kCube * x * x);
  }

  /// Σ_k a(i, k) · b(k, j), and the sizes of what is added.
  struct Product {
    std::vector<double> value, size;
  };
  static Product product_of(Operand& a, bool transpose_a, Operand& b, bool transpose_b, Extent e) {
    Product all;
    for (std::int64_t i = 0; i < e.m; ++i) {
      for (std::int64_t j = 0; j < e.n; ++j) {
        double sum = 0, size = 1;
        for (std::int64_t k = 0; k < e.k; ++k) {
          const double term = (transpose_a ? a(k, i) : a(i, k)) * (transpose_b ? b(j, k) : b(k, j));
          sum += term;
          size += std::abs(term);
        }
        all.value.push_back(sum);
        all.size.push_back(size);
      }
    }
    return all;
  }

  /// Rows start at multiples of 16 bytes.
  static constexpr Placement kAlignedRows[] = {{0, 0}, {8, 8}};
  static constexpr Extent kExtents[] = {{1, 8, 1}, {17, 64, 40}, {64, 136, 129}, {130, 24, 64}};

  /// gelu(a · b + bias) beside a · b + bias. @returns whether the provider does it
  bool check_gelu(Extent e, bool transpose_b, Placement placement, Placement bias_placement) {
    Operand a = working(e.m, e.k, placement);
    Operand b = transpose_b ? working(e.n, e.k, placement) : working(e.k, e.n, placement);
    Operand bias = working(1, e.n, bias_placement);
    Operand dst = working(e.m, e.n, placement), activated = working(e.m, e.n, placement);
    Matmul args = product(a, false, b, transpose_b, dst, false, bias);
    args.gelu = activated;
    if (!kernels_.matrix->fuses(args)) return false;
    a.random(1);
    b.random(2);
    bias.random(3, -2, 2);
    dst.fill(std::numeric_limits<double>::quiet_NaN());
    activated.fill(std::numeric_limits<double>::quiet_NaN());
    Product want = product_of(a, false, b, transpose_b, e);
    std::vector<double> plain, after;
    for (std::size_t i = 0; i < want.value.size(); ++i) {
      const double x = want.value[i] + bias[static_cast<std::int64_t>(i) % e.n];
      plain.push_back(x);
      after.push_back(gelu(x));
    }
    kernels_.matrix->matmul(args, stream());
    expect_close("before GELU", dst, plain, want.size);
    expect_close("after GELU", activated, after, want.size);
    return true;
  }

  bool check_gelu_gradient(Extent e, Placement placement) {
    Operand a = working(e.m, e.k, placement), b = working(e.k, e.n, placement);
    Operand before = working(e.m, e.n, placement), dst = working(e.m, e.n, placement);
    Matmul args = product(a, false, b, false, dst);
    args.gelu_src = before;
    if (!kernels_.matrix->fuses(args)) return false;
    a.random(1);
    b.random(2);
    before.random(3, -4, 4);
    dst.fill(std::numeric_limits<double>::quiet_NaN());
    Product want = product_of(a, false, b, false, e);
    for (std::size_t i = 0; i < want.value.size(); ++i) {
      want.value[i] *= gelu_derivative(before[static_cast<std::int64_t>(i)]);
    }
    kernels_.matrix->matmul(args, stream());
    expect_close("times the derivative of GELU", dst, want.value, want.size);
    return true;
  }

  /// Gradients of weight and bias, written and added to. @param sums  where those of the bias lie
  bool check_sums(Extent e, Placement placement, Placement sums) {
    Operand grad = working(e.k, e.m, placement), src = working(e.k, e.n, placement);
    Operand dst = f32(e.m, e.n, placement), sum = f32(1, e.m, sums);
    Matmul args = product(grad, true, src, false, dst);
    args.sum_a = sum;
    if (!kernels_.matrix->fuses(args)) return false;
    grad.random(1);
    src.random(2);
    dst.fill(std::numeric_limits<double>::quiet_NaN());
    sum.fill(std::numeric_limits<double>::quiet_NaN());
    Product want = product_of(grad, true, src, false, e);
    std::vector<double> total(static_cast<std::size_t>(e.m)), size(total.size(), 1.0);
    for (std::int64_t i = 0; i < e.k * e.m; ++i) {
      total[static_cast<std::size_t>(i % e.m)] += grad[i];
      size[static_cast<std::size_t>(i % e.m)] += 2 * std::abs(grad[i]);
    }
    kernels_.matrix->matmul(args, stream());
    expect_close("weight gradient", dst, want.value, want.size);
    expect_close("bias gradient", sum, total, size);
    for (double& x : want.value) x *= 2;
    for (double& x : total) x *= 2;
    args.accumulate = args.add_sum = true;
    kernels_.matrix->matmul(args, stream());
    expect_close("weight gradient added", dst, want.value, want.size);
    expect_close("bias gradient added", sum, total, size);
    return true;
  }
};

TEST_P(FusedProductSuite, Gelu) {
  bool any = false;
  for (const bool transpose_b : {false, true}) {
    for (const Extent e : kExtents) {
      for (const Placement placement : kAlignedRows) {
        for (const Placement bias : kPlacements) any |= check_gelu(e, transpose_b, placement, bias);
      }
    }
  }
  if (!any) GTEST_SKIP() << "the provider runs a kernel for GELU";
}

TEST_P(FusedProductSuite, GradientOfGelu) {
  bool any = false;
  for (const Extent e : kExtents) {
    for (const Placement placement : kAlignedRows) any |= check_gelu_gradient(e, placement);
  }
  if (!any) GTEST_SKIP() << "the provider runs a kernel for the gradient of GELU";
}

TEST_P(FusedProductSuite, BiasGradient) {
  bool any = false;
  for (const Extent e : {Extent{1, 1, 1}, Extent{17, 64, 40}, Extent{64, 129, 130}, Extent{130, 24, 1000}}) {
    for (const Placement placement : kPlacements) {
      for (const Placement sums : kPlacements) any |= check_sums(e, placement, sums);
    }
  }
  if (!any) GTEST_SKIP() << "the provider runs a kernel for bias gradients";
}

/// Shapes without memory are answered like those with it.
TEST_P(FusedProductSuite, ShapesAreEnough) {
  const auto shape = [&](std::int64_t rows, std::int64_t cols) { return View::matrix(nullptr, rows, cols, dtype()); };
  Operand a = working(32, 64), b = working(128, 64), bias = working(1, 128), dst = working(32, 128),
          activated = working(32, 128);
  Matmul real = product(a, false, b, true, dst, false, bias);
  real.gelu = activated;
  Matmul dry = product(shape(32, 64), false, shape(128, 64), true, shape(32, 128), false, shape(1, 128));
  dry.gelu = shape(32, 128);
  EXPECT_EQ(kernels_.matrix->fuses(dry), kernels_.matrix->fuses(real));
}

}  // namespace espalier::testing
