#include <cmath>
#include <vector>

#include "reference/common.hpp"
#include "reference/families.hpp"
#include "reference/product.hpp"

namespace espalier::reference {
namespace {

bool skipped(const std::int32_t* skip) { return skip != nullptr && *skip != 0; }

float value_or_one(const float* factor) { return factor != nullptr ? *factor : 1.0f; }

class ReferenceUpdate final : public UpdateKernels {
 public:
  explicit ReferenceUpdate(ThreadPool& pool) : pool_(pool) {}

  void adamw(const AdamW& args, Stream&) override {
    if (skipped(args.skip)) return;
    const std::int64_t n = args.master.elements();
    check(args.gradient, n);
    check(args.master, n);
    check(args.moment1, n);
    check(args.moment2, n);
    const auto step = static_cast<double>(args.step);
    const auto keep = static_cast<float>(1.0 - args.lr * args.weight_decay);
    const auto beta1 = static_cast<float>(args.beta1);
    const auto beta2 = static_cast<float>(args.beta2);
    const auto rest1 = static_cast<float>(1.0 - args.beta1);
    const auto rest2 = static_cast<float>(1.0 - args.beta2);
    const auto rate = static_cast<float>(args.lr / (1.0 - std::pow(args.beta1, step)));
    const auto root = static_cast<float>(std::sqrt(1.0 - std::pow(args.beta2, step)));
    const auto eps = static_cast<float>(args.eps);
    const float factor = value_or_one(args.factor);
    const float* gradient = args.gradient.as<float>();
    float* master = args.master.as<float>();
    float* moment1 = args.moment1.as<float>();
    float* moment2 = args.moment2.as<float>();
    flat(n, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float g = gradient[i] * factor;
        const float m = beta1 * moment1[i] + rest1 * g;
        const float v = beta2 * moment2[i] + rest2 * g * g;
        moment1[i] = m;
        moment2[i] = v;
        master[i] = master[i] * keep - rate * m / (std::sqrt(v) / root + eps);
      }
      store_working(args.working, args.master, begin, end);
    });
  }

  void scale(const View& x, double a, const float* factor, const std::int32_t* skip, Stream&) override {
    if (skipped(skip)) return;
    check(x, x.elements());
    const auto by = static_cast<float>(a * value_or_one(factor));
    flat(x.elements(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) x.as<float>()[i] *= by;
    });
  }

  void lerp(const View& x, const View& y, double t, const float* factor, const std::int32_t* skip, Stream&) override {
    if (skipped(skip)) return;
    check(x, x.elements());
    check(y, x.elements());
    const auto weight = static_cast<float>(t);
    const float by = value_or_one(factor);
    flat(x.elements(), [&](std::int64_t begin, std::int64_t end) {
      float* to = x.as<float>();
      for (std::int64_t i = begin; i < end; ++i) to[i] += weight * (y.as<float>()[i] * by - to[i]);
    });
  }

  void sign(const View& x, const View& dst, const std::int32_t* skip, Stream&) override {
    if (skipped(skip)) return;
    check(x, x.elements());
    check(dst, x.elements());
    flat(x.elements(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float value = x.as<float>()[i];
        dst.as<float>()[i] = static_cast<float>((value > 0.0f) - (value < 0.0f));
      }
    });
  }

  void axpy(double a, const View& x, const View& y, const View& working, const float* factor, const std::int32_t* skip,
            Stream&) override {
    if (skipped(skip)) return;
    check(x, x.elements());
    check(y, x.elements());
    const auto by = static_cast<float>(a * value_or_one(factor));
    flat(x.elements(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) y.as<float>()[i] += by * x.as<float>()[i];
      store_working(working, y, begin, end);
    });
  }

  void gemm(const View& a, bool transpose_a, const View& b, bool transpose_b, double alpha, double beta,
            const View& dst, Stream&) override {
    const auto product_weight = static_cast<float>(alpha);
    const auto old_weight = static_cast<float>(beta);
    const Product product{a, transpose_a, b, transpose_b};
    multiply(pool_, product, [&](std::int64_t row, std::int64_t column, std::int64_t n, float* sums) {
      float* to = dst.row<float>(row) + column;
      // As in BLAS: with beta = 0 the old contents, NaN included, do not count.
      for (std::int64_t j = 0; j < n; ++j) {
        to[j] = product_weight * sums[j] + (old_weight == 0.0f ? 0.0f : old_weight * to[j]);
      }
    });
  }

  void squared_sum(const View& x, double* slot, Stream&) override {
    check(x, x.elements());
    const std::int64_t n = x.elements();
    const auto count = static_cast<std::size_t>(blocks(n, kFlatBlock));
    if (partial_.size() < count) partial_.resize(count);
    flat(n, [&](std::int64_t begin, std::int64_t end) {
      double total = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const double value = x.as<float>()[i];
        total += value * value;
      }
      partial_[static_cast<std::size_t>(begin / kFlatBlock)] = total;
    });
    for (std::size_t i = 0; i < count; ++i) *slot += partial_[i];
  }

  void verdict(const VerdictRule& rule, float* factor, std::int32_t* skip, Stream&) override {
    double squares = 0;
    for (std::int64_t i = 0; i < rule.parameters; ++i) squares += rule.slots[i];
    const double loss = rule.slots[rule.parameters];
    const double tokens = rule.slots[rule.parameters + 1];
    const double base = tokens == 0 ? 0.0 : rule.base * rule.nominal_tokens / tokens;
    const double norm = std::sqrt(squares) * base;
    const bool finite = std::isfinite(norm) && std::isfinite(loss);
    const double clipped = rule.clip > 0 ? std::min(1.0, rule.clip / (norm + 1e-6)) : 1.0;
    *skip = finite ? 0 : 1;
    *factor = finite ? static_cast<float>(base * clipped) : 0.0f;
  }

 private:
  static void check(const View& view, std::int64_t n) {
    ESPALIER_ASSERT(view.dtype == DType::f32 && view.contiguous() && view.elements() == n);
  }

  static void store_working(const View& working, const View& master, std::int64_t begin, std::int64_t end) {
    if (!present(working)) return;
    narrow(master.as<float>() + begin, end - begin, working.flat(), 0, begin);
  }

  template <class Body>
  void flat(std::int64_t n, Body&& body) {
    for_blocks(pool_, n, kFlatBlock, body);
  }

  ThreadPool& pool_;
  std::vector<double> partial_;
};

}  // namespace

std::unique_ptr<UpdateKernels> make_update(ThreadPool& pool) { return std::make_unique<ReferenceUpdate>(pool); }

}  // namespace espalier::reference
