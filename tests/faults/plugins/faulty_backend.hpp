// The reference backend, made to go wrong at steps that the recipe names. For tests.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/config.hpp"
#include "espalier/error.hpp"
#include "espalier/host.hpp"
#include "espalier/threads.hpp"

namespace espalier::faults {

/// Rank in the world: tensor innermost, pipeline outermost.
inline int world_rank(const Grid& grid) {
  return (grid.pipeline_rank * grid.data + grid.data_rank) * grid.tensor + grid.tensor_rank;
}

/// What goes wrong, when, and where. Steps are counted from the start of the process: a verdict ends one.
class Plan {
 public:
  Plan(const ConfigView& config, HostContext& host)
      : what_(config.string("fault")), steps_(config.integers("steps")), every_(config.boolean("every_step")) {
    const std::int64_t rank = config.integer("rank");
    here_ = rank < 0 || rank == world_rank(host.facts().grid);
  }

  bool now(std::string_view what) const {
    if (!here_ || what != what_) return false;
    if (every_) return true;
    for (const std::int64_t step : steps_) {
      if (step == step_) return true;
    }
    return false;
  }
  void next_step() { ++step_; }

 private:
  std::string what_;
  std::vector<std::int64_t> steps_;
  bool every_;
  bool here_ = true;
  std::int64_t step_ = 1;
};

/// Puts NaN or infinity into one element of the bias gradients it sums, or throws.
class FaultyMatrix final : public MatrixKernels {
 public:
  FaultyMatrix(MatrixKernels& inner, const Plan& plan) : inner_(inner), plan_(plan) {}
  Reason supports(DType working) const override { return inner_.supports(working); }
  std::size_t workspace(const Matmul& shape) const override { return inner_.workspace(shape); }
  void matmul(const Matmul& args, Stream& stream) override {
    if (plan_.now("throw")) throw DeviceError("thrown on purpose by a kernel");
    inner_.matmul(args, stream);
  }
  void column_sum(const View& src, const View& dst, bool accumulate, Stream& stream) override {
    inner_.column_sum(src, dst, accumulate, stream);
    if (plan_.now("nan")) dst.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    if (plan_.now("infinity")) dst.as<float>()[0] = std::numeric_limits<float>::infinity();
  }

 private:
  MatrixKernels& inner_;
  const Plan& plan_;
};

/// Counts steps; "zero" makes all gradients and moments of a step zero.
class FaultyUpdate final : public UpdateKernels {
 public:
  FaultyUpdate(UpdateKernels& inner, Plan& plan) : inner_(inner), plan_(plan) {}
  void adamw(const AdamW& args, Stream& stream) override {
    if (zero_) {
      for (const View& view : {args.gradient, args.moment1, args.moment2}) {
        for (std::int64_t i = 0; i < view.elements(); ++i) view.as<float>()[i] = 0;
      }
    }
    inner_.adamw(args, stream);
  }
  void scale(const View& x, double a, const float* factor, const std::int32_t* skip, Stream& stream) override {
    inner_.scale(x, a, factor, skip, stream);
  }
  void lerp(const View& x, const View& y, double t, const float* factor, const std::int32_t* skip,
            Stream& stream) override {
    inner_.lerp(x, y, t, factor, skip, stream);
  }
  void sign(const View& x, const View& dst, const std::int32_t* skip, Stream& stream) override {
    inner_.sign(x, dst, skip, stream);
  }
  void axpy(double a, const View& x, const View& y, const View& working, const float* factor, const std::int32_t* skip,
            Stream& stream) override {
    inner_.axpy(a, x, y, working, factor, skip, stream);
  }
  void gemm(const View& a, bool transpose_a, const View& b, bool transpose_b, double alpha, double beta,
            const View& dst, Stream& stream) override {
    inner_.gemm(a, transpose_a, b, transpose_b, alpha, beta, dst, stream);
  }
  void squared_sum(const View& x, double* slot, Stream& stream) override { inner_.squared_sum(x, slot, stream); }
  void verdict(const VerdictRule& rule, float* factor, std::int32_t* skip, Stream& stream) override {
    inner_.verdict(rule, factor, skip, stream);
    zero_ = plan_.now("zero");
    plan_.next_step();
  }

 private:
  UpdateKernels& inner_;
  Plan& plan_;
  bool zero_ = false;
};

class FaultyBackend final : public Backend {
 public:
  FaultyBackend(const ConfigView& config, HostContext& host)
      : plan_(config, host),
        inner_(make_reference_backend(host.threads())),
        matrix_(*inner_->kernels().matrix, plan_),
        update_(*inner_->kernels().update, plan_),
        kernels_(inner_->kernels()) {
    if (plan_.now("create")) throw std::runtime_error("thrown on purpose by a constructor");
    kernels_.matrix = &matrix_;
    kernels_.update = &update_;
  }
  std::string description() const override { return inner_->description(); }
  Device& device() override { return inner_->device(); }
  const KernelSet& kernels() override { return kernels_; }
  Reason supports(const Precision& precision) const override { return inner_->supports(precision); }
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) override {
    return inner_->wrap(std::move(communicator));
  }

 private:
  Plan plan_;
  std::unique_ptr<Backend> inner_;
  FaultyMatrix matrix_;
  FaultyUpdate update_;
  KernelSet kernels_;
};

}  // namespace espalier::faults
