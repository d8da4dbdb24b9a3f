// A backend for tests of strategies: CPU memory, update kernels in plain loops, the conversion of the element-wise
// family, and no other kernel.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "espalier/backend.hpp"
#include "espalier/error.hpp"

namespace espalier::testing_support {

/// Reads and writes one element of a floating view as FP32.
inline float load(const View& view, std::int64_t i) {
  float value = 0;
  with_float_type(view.dtype, [&](auto type) { value = to_float(view.as<decltype(type)>()[i]); });
  return value;
}
inline void store(const View& view, std::int64_t i, float value) {
  with_float_type(view.dtype, [&](auto type) { view.as<decltype(type)>()[i] = from_float<decltype(type)>(value); });
}

class PlainUpdate final : public UpdateKernels {
 public:
  void adamw(const AdamW& a, Stream&) override {
    if (skips(a.skip)) return;
    const double factor = a.factor == nullptr ? 1.0 : *a.factor;
    const double correct1 = 1 - std::pow(a.beta1, static_cast<double>(a.step));
    const double correct2 = 1 - std::pow(a.beta2, static_cast<double>(a.step));
    for (std::int64_t i = 0; i < a.gradient.elements(); ++i) {
      const double g = load(a.gradient, i) * factor;
      const double m = a.beta1 * load(a.moment1, i) + (1 - a.beta1) * g;
      const double v = a.beta2 * load(a.moment2, i) + (1 - a.beta2) * g * g;
      const double w = load(a.master, i) * (1 - a.lr * a.weight_decay);
      const double step = a.lr / correct1 * m / (std::sqrt(v) / std::sqrt(correct2) + a.eps);
      store(a.moment1, i, static_cast<float>(m));
      store(a.moment2, i, static_cast<float>(v));
      store(a.master, i, static_cast<float>(w - step));
      if (a.working) store(a.working, i, static_cast<float>(w - step));
    }
  }

  void scale(const View& x, double a, const float* factor, const std::int32_t* skip, Stream&) override {
    if (skips(skip)) return;
    const double by = a * times(factor);
    for (std::int64_t i = 0; i < x.elements(); ++i) store(x, i, static_cast<float>(load(x, i) * by));
  }

  void lerp(const View& x, const View& y, double t, const float* factor, const std::int32_t* skip, Stream&) override {
    if (skips(skip)) return;
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const double from = load(x, i);
      store(x, i, static_cast<float>(from + t * (load(y, i) * times(factor) - from)));
    }
  }

  void sign(const View& x, const View& dst, const std::int32_t* skip, Stream&) override {
    if (skips(skip)) return;
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const float value = load(x, i);
      store(dst, i, value > 0 ? 1.0f : value < 0 ? -1.0f : 0.0f);
    }
  }

  void axpy(double a, const View& x, const View& y, const View& working, const float* factor, const std::int32_t* skip,
            Stream&) override {
    if (skips(skip)) return;
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const auto value = static_cast<float>(load(y, i) + a * load(x, i) * times(factor));
      store(y, i, value);
      if (working) store(working, i, value);
    }
  }

  void gemm(const View& a, bool transpose_a, const View& b, bool transpose_b, double alpha, double beta,
            const View& dst, Stream&) override {
    const std::int64_t inner = transpose_a ? a.rows : a.cols;
    for (std::int64_t r = 0; r < dst.rows; ++r) {
      for (std::int64_t c = 0; c < dst.cols; ++c) {
        double sum = 0;
        for (std::int64_t k = 0; k < inner; ++k) {
          sum += double{transpose_a ? a.row<float>(k)[r] : a.row<float>(r)[k]} *
                 double{transpose_b ? b.row<float>(c)[k] : b.row<float>(k)[c]};
        }
        float& out = dst.row<float>(r)[c];
        out = static_cast<float>(alpha * sum + (beta == 0 ? 0.0 : beta * out));
      }
    }
  }

  void squared_sum(const View& x, double* slot, Stream&) override {
    double sum = 0;
    for (std::int64_t i = 0; i < x.elements(); ++i) sum += double{load(x, i)} * double{load(x, i)};
    *slot += sum;
  }

  void verdict(const VerdictRule& rule, float* factor, std::int32_t* skip, Stream&) override {
    double sum = 0;
    for (std::int64_t p = 0; p < rule.parameters; ++p) sum += rule.slots[p];
    const double tokens = rule.slots[rule.parameters + 1];
    const double base = tokens > 0 ? rule.base * rule.nominal_tokens / tokens : 0;
    const double norm = std::sqrt(sum) * base;
    *skip = std::isfinite(norm) ? 0 : 1;
    *factor = static_cast<float>(base * (rule.clip > 0 ? std::min(1.0, rule.clip / (norm + 1e-6)) : 1.0));
  }

 private:
  static bool skips(const std::int32_t* skip) { return skip != nullptr && *skip != 0; }
  static double times(const float* factor) { return factor == nullptr ? 1.0 : double{*factor}; }
};

class PlainElementwise final : public ElementwiseKernels {
 public:
  Reason supports(DType) const override { return "conversions only"; }
  void bias_gelu(const View&, const View&, const View&, Stream&) override { missing(); }
  void bias_gelu_backward(const View&, const View&, const View&, const View&, Stream&) override { missing(); }
  void bias_dropout_add(const View&, const View&, const View&, const Dropout&, const View&, Stream&) override {
    missing();
  }
  void dropout_backward(const View&, const Dropout&, const View&, Stream&) override { missing(); }
  void embedding(const View&, const View&, std::int64_t, const View&, Stream&) override { missing(); }
  void embedding_backward(const View&, const View&, std::int64_t, const View&, Stream&) override { missing(); }
  void add(const View& a, const View& b, const View& dst, Stream&) override {
    for (std::int64_t i = 0; i < dst.elements(); ++i) store(dst, i, load(a, i) + (b ? load(b, i) : 0.0f));
  }
  void scale(const View& src, float factor, const View& dst, Stream&) override {
    for (std::int64_t i = 0; i < dst.elements(); ++i) store(dst, i, load(src, i) * factor);
  }

 private:
  [[noreturn]] static void missing() { throw DeviceError("plain backend: kernel not in it"); }
};

class PlainBackend final : public Backend {
 public:
  PlainBackend() : device_(make_cpu_device()) {
    kernels_.update = &update_;
    kernels_.elementwise = &elementwise_;
  }
  std::string description() const override { return "plain loops for tests of strategies"; }
  Device& device() override { return *device_; }
  const KernelSet& kernels() override { return kernels_; }
  Reason supports(const Precision&) const override { return {}; }
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) override { return communicator; }

 private:
  std::unique_ptr<Device> device_;
  PlainUpdate update_;
  PlainElementwise elementwise_;
  KernelSet kernels_;
};

}  // namespace espalier::testing_support
