#pragma once

#include "espalier/testing/kernel_case.hpp"

namespace espalier::testing {

class MatrixSuite : public KernelSuite {
 protected:
  struct Extent {
    std::int64_t m, n, k;
  };

  void SetUp() override {
    KernelSuite::SetUp();
    const Reason reason = kernels_.matrix->supports(dtype());
    ASSERT_FALSE(reason.has_value()) << *reason;
  }

  /// op(a) · op(b), bias, and what dst held before, against FP64.
  void check(Extent e, bool transpose_a, bool transpose_b, Placement placement) {
    SCOPED_TRACE(std::to_string(e.m) + " x " + std::to_string(e.n) + " x " + std::to_string(e.k) + ", transposed " +
                 std::to_string(transpose_a) + std::to_string(transpose_b) + ", offset " +
                 std::to_string(placement.offset));
    Operand a = transpose_a ? working(e.k, e.m, placement) : working(e.m, e.k, placement);
    Operand b = transpose_b ? working(e.n, e.k, placement) : working(e.k, e.n, placement);
    Operand bias = working(1, e.n, placement);
    a.random(1);
    b.random(2);
    bias.random(3);
    std::vector<double> product, size, biased, added;
    for (std::int64_t i = 0; i < e.m; ++i) {
      for (std::int64_t j = 0; j < e.n; ++j) {
        double sum = 0;
        double sizes = 0;
        for (std::int64_t k = 0; k < e.k; ++k) {
          const double term = (transpose_a ? a(k, i) : a(i, k)) * (transpose_b ? b(j, k) : b(k, j));
          sum += term;
          sizes += std::abs(term);
        }
        product.push_back(sum);
        size.push_back(sizes + 1);
        biased.push_back(sum + bias[j]);
        added.push_back(sum + i - j);
      }
    }
    for (const DType type : {dtype(), DType::f32}) {
      Operand dst(*backend_, type, e.m, e.n, placement);
      dst.fill(std::numeric_limits<double>::quiet_NaN());  // must not be read
      multiply(a, transpose_a, b, transpose_b, dst, false, {});
      expect_close("product", dst, product, size);
      multiply(a, transpose_a, b, transpose_b, dst, false, bias);
      expect_close("product + bias", dst, biased, size);
    }
    Operand dst = f32(e.m, e.n, placement);
    std::vector<double> before;
    for (std::int64_t i = 0; i < e.m * e.n; ++i) before.push_back(static_cast<double>(i / e.n - i % e.n));
    dst.set(before);
    multiply(a, transpose_a, b, transpose_b, dst, true, {});
    expect_close("accumulated", dst, added, size);
  }

  static Matmul product(const View& a, bool transpose_a, const View& b, bool transpose_b, const View& dst,
                        bool accumulate = false, const View& bias = {}, std::uint64_t version = 0) {
    Matmul args;
    args.a = a;
    args.b = b;
    args.dst = dst;
    args.transpose_a = transpose_a;
    args.transpose_b = transpose_b;
    args.accumulate = accumulate;
    args.bias = bias;
    args.b_version = version;
    return args;
  }

  void multiply(const View& a, bool transpose_a, const View& b, bool transpose_b, const View& dst, bool accumulate,
                const View& bias, std::uint64_t version = 0) {
    kernels_.matrix->matmul(product(a, transpose_a, b, transpose_b, dst, accumulate, bias, version), stream());
  }
};

TEST_P(MatrixSuite, ProductsOfAllSizes) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const Extent e : {Extent{1, 1, 1}, Extent{3, 1, 64}, Extent{1, 130, 3}, Extent{63, 65, 64},
                             Extent{65, 63, 130}, Extent{64, 128, 129}, Extent{127, 3, 1000}, Extent{1, 1000, 127}}) {
        check(e, transpose_a, transpose_b, {});
      }
    }
  }
}

TEST_P(MatrixSuite, ProductsOfMisalignedViews) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const Placement placement : kPlacements) check({17, 33, 65}, transpose_a, transpose_b, placement);
    }
  }
}

TEST_P(MatrixSuite, SumsAreFp32) {  // a sum in BF16 stops at 256, one in FP16 at 2,048
  Operand a = working(3, 5000);
  Operand b = working(5000, 2);
  Operand dst = f32(3, 2);
  a.fill(1);
  b.fill(1);
  multiply(a, false, b, false, dst, false, {});
  EXPECT_EQ(dst.read(), std::vector<double>(6, 5000.0));
}

TEST_P(MatrixSuite, MicroBatchesAddUpInFp32) {  // P09
  Operand a = working(1, 1);
  Operand b = working(1, 1);
  Operand dst = f32(1, 1);
  Operand sum = f32(1, 1);
  a.fill(1);
  b.fill(1);
  for (int micro = 0; micro < 512; ++micro) {
    multiply(a, true, b, false, dst, true, {});
    kernels_.matrix->column_sum(a, sum, micro > 0, stream());
  }
  EXPECT_EQ(dst.read(), std::vector<double>{512.0});
  EXPECT_EQ(sum.read(), std::vector<double>{512.0});
}

TEST_P(MatrixSuite, RoundsOnceToNearestEven) {
  const double ulp = dtype() == DType::bf16 ? 0x1p-7 : dtype() == DType::f16 ? 0x1p-10 : 0x1p-23;
  Operand a = working(1, 3);
  Operand b = working(3, 4);
  Operand bias = working(1, 4);
  Operand dst = working(1, 4);
  a.fill(1);
  // Ties go to the even neighbour, with the bias added before the rounding: 1 + ½, 1 + 1½, 1 + ¼ + ¼ and 1 + ¾ + ¾
  // units.
  b.set(std::vector<double>{1, 1, 1, 1, ulp / 2, ulp, ulp / 4, ulp * 0.75, 0, 0, 0, 0});
  bias.set(std::vector<double>{0, ulp / 2, ulp / 4, ulp * 0.75});
  if (dtype() == DType::f32) {  // the FP32 sum rounds at each addition, so only single additions are exact
    b.set(std::vector<double>{1, 1, 1, 1, 0, ulp, 0, ulp, 0, 0, 0, 0});
    bias.set(std::vector<double>{ulp / 2, ulp / 2, ulp / 2, ulp / 2});
  }
  multiply(a, false, b, false, dst, false, bias);
  EXPECT_EQ(dst.read(), (std::vector<double>{1, 1 + 2 * ulp, 1, 1 + 2 * ulp}));
}

TEST_P(MatrixSuite, OverflowsAsTheStorageDoes) {
  Operand a = working(1, 2);
  Operand b = working(2, 1);
  Operand dst = working(1, 1);
  a.set(std::vector<double>{30000, 30000});
  b.fill(2);
  multiply(a, false, b, false, dst, false, {});
  const double want = rounded(dtype(), 2 * (2 * rounded(dtype(), 30000)));
  EXPECT_EQ(std::isinf(want), dtype() == DType::f16);
  EXPECT_EQ(dst.read(), std::vector<double>{want});
}

TEST_P(MatrixSuite, PackedCopyFollowsTheVersion) {
  Operand a = working(17, 64);
  Operand b = working(96, 64);
  Operand dst = f32(17, 96);
  a.random(1);
  b.random(2);
  multiply(a, false, b, true, dst, false, {}, 1);
  const std::vector<double> first = dst.read();
  multiply(a, false, b, true, dst, false, {}, 1);
  EXPECT_EQ(dst.read(), first) << "with a kept copy";
  b.random(3);
  multiply(a, false, b, true, dst, false, {}, 2);
  const std::vector<double> second = dst.read();
  EXPECT_NE(second, first) << "an old copy was used";
  multiply(a, false, b, true, dst, false, {}, 0);
  EXPECT_EQ(dst.read(), second) << "with and without a version";
}

TEST_P(MatrixSuite, ColumnSums) {
  for (const std::int64_t rows : kSizes) {
    for (const std::int64_t cols : {1, 3, 63, 64, 65, 130}) {
      for (const Placement placement : kPlacements) {
        Operand src = working(rows, cols, placement);
        Operand dst = f32(1, cols, placement);
        src.random(1);
        dst.fill(std::numeric_limits<double>::quiet_NaN());
        std::vector<double> want(static_cast<std::size_t>(cols)), size(want.size(), 1.0), twice;
        for (std::int64_t i = 0; i < rows * cols; ++i) {
          want[static_cast<std::size_t>(i % cols)] += src[i];
          size[static_cast<std::size_t>(i % cols)] += 2 * std::abs(src[i]);
        }
        for (const double x : want) twice.push_back(2 * x);
        kernels_.matrix->column_sum(src, dst, false, stream());
        expect_close("column sum", dst, want, size);
        kernels_.matrix->column_sum(src, dst, true, stream());
        expect_close("column sum added", dst, twice, size);
      }
    }
  }
}

TEST_P(MatrixSuite, SameBitsWithAnyThreads) {
  expect_same_with_any_threads([this] {
    Operand a = working(130, 257);
    Operand b = working(129, 257);
    Operand dst = f32(130, 129);
    Operand sum = f32(1, 257);
    multiply(a.random(1), false, b.random(2), true, dst, false, {});
    kernels_.matrix->column_sum(a, sum, false, stream());
    std::vector<double> all = dst.read();
    const std::vector<double> sums = sum.read();
    all.insert(all.end(), sums.begin(), sums.end());
    return all;
  });
}

}  // namespace espalier::testing
