#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cuda_emulation/emulator.hpp"
#include "espalier/testing/operand.hpp"
#include "espalier/threads.hpp"
#include "kernels/emulated_backend.hpp"

namespace espalier::testing {

struct ScheduleCase {
  DType dtype;
  bool whole;  ///< the sizes of real models rather than those around the widths of packs, warps and blocks
};

/// How near a kernel comes to the reference provider: a rounding of each result; a rounding of it or of 1, whichever is larger (sums
/// of what was rounded before); the same bits.
enum class Agreement : std::uint8_t { rounding, near_one, bits };

/// The same work in three schedules with the watch on shared memory, and by the reference provider.
class ScheduleTest : public ::testing::TestWithParam<ScheduleCase> {
 protected:
  ~ScheduleTest() override { cuda_emulation::options() = before_; }

  static DType dtype() { return GetParam().dtype; }
  static Stream& stream(Backend& backend) { return backend.device().lane(Lane::compute); }

  static Operand i32(Backend& backend, const std::vector<double>& values) {
    Operand ids(backend, DType::i32, 1, static_cast<std::int64_t>(values.size()));
    ids.set(values);
    return ids;
  }
  static std::vector<double> append(std::vector<double>& results, Operand& more) {
    const std::vector<double> values = more.read();
    results.insert(results.end(), values.begin(), values.end());
    return results;
  }

  /// body(rows, cols, placement): aligned, one element off, and off with gaps between the rows.
  /// @param more_small, more_whole  columns of interest to this kernel alone.
  template <class Body>
  static void for_shapes(Body&& body, const std::vector<std::int64_t>& more_small = {},
                         const std::vector<std::int64_t>& more_whole = {}) {
    std::vector<std::int64_t> sizes{1, 3, 63, 64, 65, 127, 128, 129, 1000};
    if (GetParam().whole) sizes = {1024, 14336};
    const std::vector<std::int64_t>& more = GetParam().whole ? more_whole : more_small;
    sizes.insert(sizes.end(), more.begin(), more.end());
    for (const std::int64_t cols : sizes) {
      for (const Placement placement : {Placement{0, 0}, Placement{1, 0}, Placement{3, 5}}) {
        SCOPED_TRACE(std::to_string(cols) + " columns, offset " + std::to_string(placement.offset));
        body(cols == 65 ? 9 : 3, cols, placement);
      }
    }
  }

  /// work(backend) gives results as numbers: the same bits in every schedule, and what the reference gives.
  template <class Work>
  void expect_reference(Work&& work, Agreement agreement = Agreement::rounding) {
    using cuda_emulation::Order;
    std::vector<double> first;
    for (const Order order : {Order::forward, Order::reverse, Order::random}) {
      cuda_emulation::options() = {.order = order, .seed = 7, .races = true};
      EmulatedBackend backend;
      const std::vector<double> got = work(backend);
      if (order == Order::forward) first = got;
      ASSERT_EQ(got, first) << "depends on the order of threads or blocks: order " << static_cast<int>(order);
    }
    const auto pool = make_thread_pool(1);
    const auto reference = make_reference_backend(*pool);
    const std::vector<double> want = work(*reference);
    ASSERT_EQ(first.size(), want.size());
    if (agreement == Agreement::bits) {
      ASSERT_EQ(first, want);
      return;
    }
    const double relative = dtype() == DType::f32 ? 2e-6 : dtype() == DType::bf16 ? 8e-3 : 1e-3;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double size = agreement == Agreement::near_one ? std::max(1.0, std::abs(want[i])) : std::abs(want[i]);
      ASSERT_NEAR(first[i], want[i], relative * size + 2e-6) << "result " << i << " of " << want.size();
    }
  }

 private:
  cuda_emulation::Options before_ = cuda_emulation::options();
};

inline std::string schedule_case_name(const ::testing::TestParamInfo<ScheduleCase>& info) {
  return std::string(name_of(info.param.dtype)) + (info.param.whole ? "_whole" : "_small");
}

#define INSTANTIATE_SCHEDULES(suite)                                                                            \
  INSTANTIATE_TEST_SUITE_P(Emulated, suite,                                                                     \
                           ::testing::Values(ScheduleCase{DType::f32, false}, ScheduleCase{DType::bf16, false}, \
                                             ScheduleCase{DType::f16, false}, ScheduleCase{DType::f32, true},   \
                                             ScheduleCase{DType::bf16, true}, ScheduleCase{DType::f16, true}),  \
                           schedule_case_name)

}  // namespace espalier::testing
