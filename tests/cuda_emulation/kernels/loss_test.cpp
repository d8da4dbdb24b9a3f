// The cross entropy over numbers of columns, placements and schedules, against the reference provider.
#include <algorithm>
#include <vector>

#include "kernels/schedules.hpp"

namespace espalier::testing {
namespace {

class LossSchedules : public ScheduleTest {};

TEST_P(LossSchedules, MaximumSumAndGradient) {
  // 390, 4,100 and 28,678: the last of the packs that a thread loads ahead is cut off by the padding. 250,880: BLOOM's.
  const auto check = [&](std::int64_t rows, std::int64_t cols, Placement placement) {
    const std::int64_t padding = cols % 4 == 0 ? 5 : cols > 3 ? 3 : 0, valid = cols - padding;
    expect_reference([&](Backend& backend) {
      std::vector<double> ids;
      for (std::int64_t t = 0; t < rows; ++t)
        ids.push_back(t % 3 == 2 ? -1 : 100 + static_cast<double>(t * 37 % valid));
      Operand targets = i32(backend, ids), logits(backend, DType::f32, rows, cols, placement);
      Operand row_max(backend, DType::f32, 1, rows), sum_exp(backend, DType::f32, 1, rows);
      Operand target_logit(backend, DType::f32, 1, rows), loss(backend, DType::f32, 1, rows);
      Operand grad(backend, dtype(), rows, cols, placement), slots(backend, DType::f64, 1, 2);
      logits.random(1, -8, 8);
      LossKernels& kernels = *backend.kernels().loss;
      kernels.row_max(logits, valid, row_max, stream(backend));
      kernels.exp_sum(logits, valid, row_max, targets, 100, sum_exp, target_logit, stream(backend));
      kernels.gradient(logits, valid, row_max, sum_exp, target_logit, targets, 100, 0.5f, loss, grad, stream(backend));
      kernels.gradient(logits, valid, row_max, sum_exp, target_logit, targets, 100, 0.5f, {}, logits, stream(backend));
      kernels.accumulate(loss, targets, slots, stream(backend));
      std::vector<double> results = row_max.read();
      for (Operand* result : {&target_logit, &loss, &grad, &logits, &slots}) append(results, *result);
      double beyond = 0;  // exactly zero in the padding, however small the probabilities
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t c = valid; c < cols; ++c) beyond += std::abs(grad(t, c)) + std::abs(logits(t, c));
      }
      results.push_back(beyond > 0 ? 1 : 0);
      const std::vector<double> sums = sum_exp.read();  // of all columns: near each other by their size
      for (const double sum : sums) results.push_back(std::log(sum));
      return results;
    });
  };
  for_shapes(check, {390, 4100}, {28678, 250880});
}

TEST_P(LossSchedules, AccumulatedInAscendingOrder) {
  for (const std::int64_t tokens : {1, 255, 256, 257, 1000, 1024}) {
    expect_reference(
        [&](Backend& backend) {
          std::vector<double> ids(static_cast<std::size_t>(tokens)), losses;
          for (std::int64_t t = 0; t < tokens; ++t) {
            ids[static_cast<std::size_t>(t)] = t % 5 == 1 ? -1 : 3;
            losses.push_back(std::exp2(random_value(5, t, -40, 10)));  // so far apart that FP64 rounds
          }
          Operand loss(backend, DType::f32, 1, tokens), slots(backend, DType::f64, 1, 2);
          loss.set(losses);
          slots.set(std::vector<double>{1e6, 3});
          backend.kernels().loss->accumulate(loss, i32(backend, ids), slots, stream(backend));
          return slots.read();
        },
        Agreement::bits);
  }
}

TEST_P(LossSchedules, NothingToDo) {
  expect_reference([&](Backend& backend) {
    Operand logits(backend, DType::f32, 0, 5), none(backend, DType::f32, 1, 0), slots(backend, DType::f64, 1, 2);
    Operand targets = i32(backend, {});
    LossKernels& kernels = *backend.kernels().loss;
    kernels.row_max(logits, 5, none, stream(backend));
    kernels.exp_sum(logits, 5, none, targets, 0, none, none, stream(backend));
    kernels.gradient(logits, 5, none, none, none, targets, 0, 1, none, logits, stream(backend));
    kernels.accumulate(none, targets, slots, stream(backend));
    return slots.read();
  });
}

}  // namespace

INSTANTIATE_SCHEDULES(LossSchedules);

}  // namespace espalier::testing
