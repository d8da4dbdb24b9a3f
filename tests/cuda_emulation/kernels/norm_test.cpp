// Layer norm over hidden sizes, placements and schedules, against the reference provider.
#include <vector>

#include "kernels/schedules.hpp"

namespace espalier::testing {
namespace {

class NormSchedules : public ScheduleTest {
 protected:
  static std::vector<double> forward(Backend& backend, std::int64_t rows, std::int64_t cols, Placement placement) {
    Operand src(backend, dtype(), rows, cols, placement), dst(backend, dtype(), rows, cols, placement);
    Operand weight(backend, dtype(), 1, cols, placement), bias(backend, dtype(), 1, cols, placement);
    Operand mean(backend, DType::f32, 1, rows), rstd(backend, DType::f32, 1, rows);
    src.random(1, -1, 2);
    weight.random(2, 0.5, 1.5);
    bias.random(3);
    backend.kernels().norm->forward({src, weight, bias, dst, mean, rstd, 1e-5f}, stream(backend));
    std::vector<double> results = dst.read();
    append(results, mean);
    return append(results, rstd);
  }

  static std::vector<double> backward(Backend& backend, std::int64_t rows, std::int64_t cols, Placement placement,
                                      bool with_residual, bool accumulate) {
    Operand src(backend, dtype(), rows, cols, placement), weight(backend, dtype(), 1, cols, placement);
    Operand grad_dst(backend, dtype(), rows, cols, placement), grad_src(backend, dtype(), rows, cols, placement);
    Operand residual(backend, dtype(), rows, cols, placement);
    Operand mean(backend, DType::f32, 1, rows), rstd(backend, DType::f32, 1, rows);
    Operand grad_weight(backend, DType::f32, 1, cols, placement), grad_bias(backend, DType::f32, 1, cols, placement);
    src.random(1, -1, 2);
    weight.random(2, 0.5, 1.5);
    grad_dst.random(3);
    residual.random(4);
    mean.random(5, 0.4, 0.6);
    rstd.random(6, 0.8, 1.2);
    grad_weight.random(7);
    grad_bias.random(8);
    backend.kernels().norm->backward({grad_dst, src, weight, mean, rstd, grad_src,
                                      with_residual ? residual.view() : View{}, grad_weight, grad_bias, accumulate},
                                     stream(backend));
    std::vector<double> results = grad_src.read();
    append(results, grad_weight);
    return append(results, grad_bias);
  }
};

TEST_P(NormSchedules, Forward) {
  for_shapes([&](std::int64_t rows, std::int64_t cols, Placement placement) {
    expect_reference([&](Backend& backend) { return forward(backend, rows, cols, placement); });
  });
}

TEST_P(NormSchedules, Backward) {
  for_shapes([&](std::int64_t rows, std::int64_t cols, Placement placement) {
    expect_reference([&](Backend& backend) { return backward(backend, rows, cols, placement, false, false); });
  });
}

TEST_P(NormSchedules, BackwardWithResidualAddedToGradients) {
  for_shapes([&](std::int64_t rows, std::int64_t cols, Placement placement) {
    expect_reference([&](Backend& backend) { return backward(backend, rows, cols, placement, true, true); });
  });
}

TEST_P(NormSchedules, RowsLongerThanRegistersHold) {
  if (!GetParam().whole) return;
  for (const Placement placement : {Placement{0, 0}, Placement{1, 3}}) {
    expect_reference([&](Backend& backend) { return forward(backend, 2, 40001, placement); });
    expect_reference([&](Backend& backend) { return backward(backend, 2, 40001, placement, true, false); });
  }
}

TEST_P(NormSchedules, RowsInSeveralParts) {  // 33 rows: whole parts of the weight gradient's sum, and one row
  expect_reference([&](Backend& backend) { return backward(backend, 33, 65, {1, 0}, false, true); });
}

TEST_P(NormSchedules, NoRowsClearTheWeightsGradients) {
  for (const bool accumulate : {false, true}) {
    expect_reference([&](Backend& backend) { return backward(backend, 0, 65, {}, false, accumulate); });
  }
}

TEST_P(NormSchedules, AlignmentLeavesTheBits) {
  cuda_emulation::options() = {};
  EmulatedBackend backend;
  for (const std::int64_t cols : {65, 1000, 4100}) {
    EXPECT_EQ(forward(backend, 3, cols, {0, 0}), forward(backend, 3, cols, {1, 2}));
    EXPECT_EQ(backward(backend, 3, cols, {0, 0}, true, true), backward(backend, 3, cols, {3, 1}, true, true));
  }
}

}  // namespace

INSTANTIATE_SCHEDULES(NormSchedules);

}  // namespace espalier::testing
