#include <cmath>
#include <limits>

#include "reference/common.hpp"
#include "reference/families.hpp"

namespace espalier::reference {
namespace {

class ReferenceLoss final : public LossKernels {
 public:
  explicit ReferenceLoss(ThreadPool& pool) : pool_(pool) {}

  Reason supports(DType working) const override { return needs_float(working); }

  void row_max(const View& logits, std::int64_t valid, const View& row_max, Stream&) override {
    for_rows(pool_, logits.rows, [&](std::int64_t t) {
      const float* row = logits.row<float>(t);
      float largest = -std::numeric_limits<float>::infinity();
      for (std::int64_t c = 0; c < valid; ++c) largest = std::max(largest, row[c]);
      row_max.as<float>()[t] = largest;
    });
  }

  void exp_sum(const View& logits, std::int64_t valid, const View& row_max, const View& targets, std::int64_t first_id,
               const View& sum_exp, const View& target_logit, Stream&) override {
    for_rows(pool_, logits.rows, [&](std::int64_t t) {
      const float* row = logits.row<float>(t);
      const float largest = row_max.as<float>()[t];
      sum_exp.as<float>()[t] = sum(valid, [&](std::int64_t c) { return std::exp(row[c] - largest); });
      const std::int32_t target = targets.as<std::int32_t>()[t];
      const std::int64_t column = target - first_id;
      const bool owned = target >= 0 && column >= 0 && column < valid;
      target_logit.as<float>()[t] = owned ? row[column] - largest : 0.0f;
    });
  }

  void gradient(const View& logits, std::int64_t valid, const View& row_max, const View& sum_exp,
                const View& target_logit, const View& targets, std::int64_t first_id, float scale, const View& loss,
                const View& grad, Stream&) override {
    if (present(loss)) {
      for (std::int64_t t = 0; t < logits.rows; ++t) {
        const bool masked = targets.as<std::int32_t>()[t] < 0;
        loss.as<float>()[t] = masked ? 0.0f : std::log(sum_exp.as<float>()[t]) - target_logit.as<float>()[t];
      }
    }
    if (!present(grad)) return;
    with_type(grad.dtype, [&](auto type) {
      using T = decltype(type);
      for_rows(pool_, logits.rows, [&](std::int64_t t) {
        const float* row = logits.row<float>(t);
        T* out = grad.row<T>(t);
        const std::int32_t target = targets.as<std::int32_t>()[t];
        const std::int64_t real = target < 0 ? 0 : valid;
        const float largest = row_max.as<float>()[t];
        const float total = sum_exp.as<float>()[t];
        for (std::int64_t c = 0; c < real; ++c) {
          const float probability = std::exp(row[c] - largest) / total;
          out[c] = from_float<T>((probability - (c == target - first_id ? 1.0f : 0.0f)) * scale);
        }
        std::fill(out + real, out + grad.cols, from_float<T>(0.0f));
      });
    });
  }

  void accumulate(const View& loss, const View& targets, const View& slots, Stream&) override {
    double total = 0;
    double count = 0;
    for (std::int64_t t = 0; t < loss.elements(); ++t) {
      total += loss.as<float>()[t];
      count += targets.as<std::int32_t>()[t] >= 0 ? 1 : 0;
    }
    slots.as<double>()[0] += total;
    slots.as<double>()[1] += count;
  }

 private:
  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<LossKernels> make_loss(ThreadPool& pool) { return std::make_unique<ReferenceLoss>(pool); }

}  // namespace espalier::reference
