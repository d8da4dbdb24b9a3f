#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/testing/operand.hpp"
#include "espalier/threads.hpp"

namespace espalier::testing {

/// One provider with one working type. Results are compared with oracles in FP64 on the same, already rounded inputs.
struct KernelCase {
  std::string name;  ///< of the tests: "avx2_bf16"
  std::function<std::unique_ptr<Backend>(ThreadPool&)> make;
  DType dtype = DType::f32;
  double tolerance = 1e-6;  ///< of results in the working type, relative to their size
  double sums = 1e-6;       ///< of sums in FP32, relative to the size of what was added
};

inline std::ostream& operator<<(std::ostream& out, const KernelCase& kernel_case) { return out << kernel_case.name; }

/// The three working types of a provider, with the tolerances every provider of ours meets.
inline std::vector<KernelCase> kernel_cases(const std::string& name,
                                            const std::function<std::unique_ptr<Backend>(ThreadPool&)>& make) {
  return {{name + "_f32", make, DType::f32, 1e-6},
          {name + "_bf16", make, DType::bf16, 8e-3},
          {name + "_f16", make, DType::f16, 1e-3}};
}

inline std::string case_name(const ::testing::TestParamInfo<KernelCase>& info) { return info.param.name; }

/// Sizes around the widths of vectors and tiles.
inline constexpr std::int64_t kSizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 130, 1000};
/// Aligned, and off by one and by three elements with gaps between the rows.
inline constexpr Placement kPlacements[] = {{0, 0}, {1, 0}, {3, 5}};

class KernelSuite : public ::testing::TestWithParam<KernelCase> {
 protected:
  KernelSuite() : pool_(make_thread_pool(2)), backend_(GetParam().make(*pool_)), kernels_(backend_->kernels()) {}

  void SetUp() override {
    const Reason reason = backend_->supports({dtype(), DType::f32, DType::f32, false});
    ASSERT_FALSE(reason.has_value()) << *reason;
  }

  DType dtype() const { return GetParam().dtype; }
  Stream& stream() { return backend_->device().lane(Lane::compute); }

  /// An operand in the working type.
  Operand working(std::int64_t rows, std::int64_t cols, Placement placement = {}) {
    return Operand(*backend_, dtype(), rows, cols, placement);
  }
  Operand f32(std::int64_t rows, std::int64_t cols, Placement placement = {}) {
    return Operand(*backend_, DType::f32, rows, cols, placement);
  }
  Operand i32(std::span<const double> values) {
    Operand ids(*backend_, DType::i32, 1, static_cast<std::int64_t>(values.size()));
    ids.set(values);
    return ids;
  }

  /// Reads `got` back and compares: |got − want| <= relative · |want| + sums · magnitude, where relative is the case's
  /// tolerance for working types and `sums` for FP32. NaN and infinities must be where they are wanted.
  /// @param magnitude  size of what each element was summed from; empty stands for 1.
  void expect_close(const std::string& what, Operand& got, std::span<const double> want,
                    std::span<const double> magnitude = {}) {
    const double relative = got.dtype() == dtype() ? GetParam().tolerance : GetParam().sums;
    expect_within(what, got.read(), want, relative, magnitude, GetParam().sums, got.dtype());
  }

  /// |got − want| <= tolerance · max(1, |want|) in the working type.
  void expect_near_one(const std::string& what, std::span<const double> got, std::span<const double> want) {
    const std::vector<double> none(want.size(), 1.0);
    expect_within(what, got, want, GetParam().tolerance, none, GetParam().tolerance, dtype());
  }

  static void expect_within(const std::string& what, std::span<const double> got, std::span<const double> want,
                            double relative, std::span<const double> magnitude, double sums, DType dtype) {
    ASSERT_EQ(got.size(), want.size()) << what;
    const double smallest = dtype == DType::f16 ? 0x1p-24 : 1e-30;  // a subnormal's step
    std::size_t wrong = 0;
    std::size_t worst = 0;
    double worst_excess = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double size = magnitude.empty() ? 1.0 : magnitude[i];
      const double allowed = relative * std::abs(want[i]) + sums * size + smallest;
      double excess = std::abs(got[i] - want[i]) / allowed;
      if (std::isnan(want[i]) || std::isinf(want[i]) || std::isnan(got[i])) {
        const bool same = std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i];
        excess = same ? 0 : std::numeric_limits<double>::infinity();
      }
      if (excess > 1) ++wrong;
      if (excess > worst_excess) {
        worst_excess = excess;
        worst = i;
      }
    }
    EXPECT_EQ(wrong, 0u) << what << ": of " << want.size() << " elements; the worst is " << worst << ": got "
                         << got[worst] << ", want " << want[worst] << ", " << worst_excess
                         << " times the allowed difference";
  }

  /// Runs `body` on a fresh backend with each number of threads; what it returns must be the same to the bit.
  template <class Body>
  void expect_same_with_any_threads(Body&& body) {
    std::vector<double> first;
    for (const int threads : {1, 2, 3}) {
      backend_.reset();
      pool_ = make_thread_pool(threads);
      backend_ = GetParam().make(*pool_);
      kernels_ = backend_->kernels();
      const std::vector<double> result = body();
      if (threads == 1) first = result;
      EXPECT_EQ(result, first) << threads << " threads";
    }
  }

  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  KernelSet kernels_;
};

}  // namespace espalier::testing
