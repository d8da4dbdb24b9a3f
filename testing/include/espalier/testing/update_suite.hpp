#pragma once

#include "espalier/testing/kernel_case.hpp"

namespace espalier::testing {

class UpdateSuite : public KernelSuite {
 protected:
  /// Three AdamW steps on n values that start `offset` elements off a border, against FP64; canaries lie around every
  /// operand.
  void check_adamw(std::int64_t n, std::int64_t offset, bool with_working, double decay) {
    SCOPED_TRACE("n " + std::to_string(n) + ", offset " + std::to_string(offset));
    const Placement placement{offset, 0};
    Operand gradient = f32(1, n, placement), master = f32(1, n, placement), moment1 = f32(1, n, placement);
    Operand moment2 = f32(1, n, placement), copy = working(1, n, placement), factor = f32(1, 1);
    Operand skip = i32(std::vector<double>{0});
    master.random(1);
    factor.fill(0.25);
    std::vector<double> w = master.values(), m(w.size()), v(w.size());
    AdamW args{gradient, master, moment1, moment2, with_working ? copy.view() : View{}};
    args.lr = 1e-2;
    args.weight_decay = decay;
    args.factor = factor.view().as<float>();
    args.skip = skip.view().as<std::int32_t>();
    for (args.step = 1; args.step <= 3; ++args.step) {
      gradient.random(static_cast<std::uint32_t>(10 + args.step));
      kernels_.update->adamw(args, stream());
      const auto t = static_cast<double>(args.step);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double g = gradient[static_cast<std::int64_t>(i)] * 0.25;
        w[i] -= args.lr * decay * w[i];
        m[i] = args.beta1 * m[i] + (1 - args.beta1) * g;
        v[i] = args.beta2 * v[i] + (1 - args.beta2) * g * g;
        w[i] -= args.lr / (1 - std::pow(args.beta1, t)) * m[i] /
                (std::sqrt(v[i]) / std::sqrt(1 - std::pow(args.beta2, t)) + args.eps);
      }
    }
    expect_close("master", master, w);
    expect_close("moment1", moment1, m);
    expect_close("moment2", moment2, v);
    gradient.read();
    if (with_working) expect_rounded(copy, master.values());

    const std::vector<double> before = master.values();
    skip.fill(1);
    kernels_.update->adamw(args, stream());
    EXPECT_EQ(master.read(), before) << "skip was ignored";
  }

  void expect_rounded(Operand& copy, const std::vector<double>& master) {
    std::vector<double> want;
    for (const double x : master) want.push_back(rounded(copy.dtype(), x));
    EXPECT_EQ(copy.read(), want) << "the working copy is not the rounded master";
  }

  struct Verdict {
    double factor = 0;
    double skip = 0;
  };
  Verdict decide(const std::vector<double>& slots, double nominal, double base, double clip) {
    Operand device_slots(*backend_, DType::f64, 1, static_cast<std::int64_t>(slots.size()));
    Operand factor = f32(1, 1), skip = i32(std::vector<double>{7});
    device_slots.set(slots);
    const VerdictRule rule{device_slots.view().as<double>(), static_cast<std::int64_t>(slots.size()) - 2, nominal, base,
                           clip};
    kernels_.update->verdict(rule, factor.view().as<float>(), skip.view().as<std::int32_t>(), stream());
    return {factor.read()[0], skip.read()[0]};
  }
};

TEST_P(UpdateSuite, AdamWOnShardsOfAnySize) {  // K15
  for (const std::int64_t n : {1, 3, 31, 32, 33, 1000, 1024, 1025, 10007}) {
    for (const std::int64_t offset : {0, 1, 2, 3}) check_adamw(n, offset, offset % 2 == 0, offset == 3 ? 0.0 : 0.1);
  }
}

TEST_P(UpdateSuite, SmallUpdatesReachTheMaster) {  // P11: without a master a BF16 weight would stay 1
  Operand step = f32(1, 1), master = f32(1, 1), copy = working(1, 1);
  step.fill(1);
  master.fill(1);
  for (int i = 0; i < 100; ++i) kernels_.update->axpy(-6e-4, step, master, copy, nullptr, nullptr, stream());
  EXPECT_NEAR(master.read()[0], 0.94, 1e-5);
  expect_rounded(copy, master.values());

  Operand moment1 = f32(1, 1), moment2 = f32(1, 1);
  master.fill(1);
  AdamW args{step, master, moment1, moment2, copy};
  args.lr = 6e-4;
  for (args.step = 1; args.step <= 100; ++args.step) kernels_.update->adamw(args, stream());
  EXPECT_NEAR(master.read()[0], 0.94, 1e-5);
  expect_rounded(copy, master.values());
}

TEST_P(UpdateSuite, VectorOperations) {
  for (const std::int64_t n : kSizes) {
    for (const std::int64_t offset : {0, 1, 3}) {
      SCOPED_TRACE("n " + std::to_string(n) + ", offset " + std::to_string(offset));
      const Placement at{offset, 0};
      Operand x = f32(1, n, at), y = f32(1, n, at), copy = working(1, n, at), signs = f32(1, n, at), factor = f32(1, 1);
      Operand skip = i32(std::vector<double>{1});
      const auto* by = factor.view().as<float>();
      const auto* skipped = skip.view().as<std::int32_t>();
      factor.fill(0.5);
      y.random(2);
      std::vector<double> scaled, mixed, moved, sign;
      for (std::int64_t i = 0; i < n; ++i) {
        const double a = rounded(DType::f32, random_value(1, i));
        scaled.push_back(a * 3 * 0.5);
        mixed.push_back(a + 0.3 * (y[i] * 0.5 - a));
        moved.push_back(a - 0.7 * 0.5 * y[i]);
        sign.push_back(i == 0 ? 0 : a > 0 ? 1 : -1);
      }
      UpdateKernels& update = *kernels_.update;
      update.scale(x.random(1), 3, by, nullptr, stream());
      expect_close("scale", x, scaled);
      update.lerp(x.random(1), y, 0.3, by, nullptr, stream());
      expect_close("lerp", x, mixed);
      update.axpy(-0.7, y, x.random(1), copy, by, nullptr, stream());
      expect_close("axpy", x, moved);
      expect_rounded(copy, x.values());
      std::vector<double> with_zero = x.random(1).values();
      with_zero[0] = 0;
      update.sign(x.set(with_zero), signs, nullptr, stream());
      EXPECT_EQ(signs.read(), sign);
      update.scale(x, 3, by, skipped, stream());
      update.lerp(x, y, 0.3, by, skipped, stream());
      update.axpy(-0.7, y, x, copy, by, skipped, stream());
      update.sign(y, signs, skipped, stream());
      EXPECT_EQ(x.read(), with_zero) << "skip was ignored";
      EXPECT_EQ(signs.read(), sign) << "skip was ignored";
    }
  }
}

TEST_P(UpdateSuite, MatrixProducts) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const std::int64_t m = 33, n = 65, k = 130;
      Operand a = transpose_a ? f32(k, m) : f32(m, k), b = transpose_b ? f32(n, k) : f32(k, n), dst = f32(m, n);
      a.random(1);
      b.random(2);
      dst.random(3);
      std::vector<double> added, alone;
      for (std::int64_t i = 0; i < m * n; ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          sum += (transpose_a ? a(l, i / n) : a(i / n, l)) * (transpose_b ? b(i % n, l) : b(l, i % n));
        }
        added.push_back(1.5 * sum - 0.5 * dst[i]);
        alone.push_back(1.5 * sum);
      }
      const std::vector<double> size(added.size(), 1.5 * k / 3);
      kernels_.update->gemm(a, transpose_a, b, transpose_b, 1.5, -0.5, dst, stream());
      expect_close("1.5 ab - 0.5 dst", dst, added, size);
      dst.fill(std::nan(""));
      kernels_.update->gemm(a, transpose_a, b, transpose_b, 1.5, 0, dst, stream());
      expect_close("1.5 ab", dst, alone, size);
    }
  }
}

TEST_P(UpdateSuite, SquaredSums) {
  for (const std::int64_t n : {1, 3, 65, 1000, 4095, 4097, 100001}) {
    Operand x = f32(1, n, {1, 0}), slot(*backend_, DType::f64, 1, 1);
    x.random(1);
    slot.fill(0.5);
    double want = 0.5;
    for (std::int64_t i = 0; i < n; ++i) want += x[i] * x[i];
    kernels_.update->squared_sum(x, slot.view().as<double>(), stream());
    EXPECT_NEAR(slot.read()[0], want, 1e-12 * want) << n;
    std::vector<double> values = x.values();
    for (const double bad : std::initializer_list<double>{INFINITY, std::nan("")}) {
      values.back() = bad;
      x.set(values);
      kernels_.update->squared_sum(x, slot.view().as<double>(), stream());
      EXPECT_FALSE(std::isfinite(slot.read()[0])) << bad << " was lost";
    }
  }
  Operand large = f32(1, 4), slot(*backend_, DType::f64, 1, 1);
  large.fill(1e30);  // the squares overflow FP32
  kernels_.update->squared_sum(large, slot.view().as<double>(), stream());
  EXPECT_NEAR(slot.read()[0] / 4e60, 1, 1e-6);
}

TEST_P(UpdateSuite, SameBitsWithAnyThreads) {
  expect_same_with_any_threads([this] {
    Operand x = f32(1, 100001), slot(*backend_, DType::f64, 1, 1);
    kernels_.update->squared_sum(x.random(1), slot.view().as<double>(), stream());
    return slot.read();
  });
}

TEST_P(UpdateSuite, VerdictOfAStep) {
  // Slots 9 + 16: norm 5 · base · nominal / actual.
  Verdict v = decide({9, 16, 40, 100}, 100, 0.5, 0);
  EXPECT_EQ(v.skip, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(v.factor), 0.5f) << "no clipping";
  v = decide({9, 16, 40, 50}, 100, 0.5, 10);
  EXPECT_FLOAT_EQ(static_cast<float>(v.factor), 1.0f) << "half of the tokens are masked; norm 5 is below 10";
  v = decide({9, 16, 40, 100}, 100, 0.5, 1);
  EXPECT_FLOAT_EQ(static_cast<float>(v.factor), static_cast<float>(0.5 / (2.5 + 1e-6))) << "norm 2.5 is clipped to 1";
  v = decide({0, 0, 40, 0}, 100, 0.5, 1);
  EXPECT_EQ(v.factor, 0) << "no target token";
  EXPECT_EQ(v.skip, 0);
  for (const double bad : std::initializer_list<double>{INFINITY, std::nan("")}) {
    EXPECT_EQ(decide({9, bad, 40, 100}, 100, 0.5, 0).skip, 1) << bad << " without clipping";  // P15
    EXPECT_EQ(decide({9, bad, 40, 100}, 100, 0.5, 1).skip, 1) << bad;
    EXPECT_EQ(decide({9, 16, bad, 100}, 100, 0.5, 1).skip, 1) << "loss " << bad;
  }
}

}  // namespace espalier::testing
