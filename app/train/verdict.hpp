#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/communicator.hpp"
#include "espalier/optimizer.hpp"
#include "espalier/parallel/data.hpp"
#include "model/parameters.hpp"
#include "train/step_settings.hpp"

namespace espalier::app {

struct VerdictInputs {
  std::int64_t rows = 0;  ///< targets of one micro-batch if none is masked
  int micro_batches = 1;
  int data = 1;
  double loss_scale = 1;
  StepSettings settings;
};

/// The one agreement of a step (docs/architecture.md section 8, "One verdict a step"): a vector of FP64 slots, one a
/// logical parameter and then Σ loss and target tokens, summed over the world in rank order. Skip, clip and scale are
/// functions of it alone.
class VerdictMaker {
 public:
  VerdictMaker(const ParameterList& parameters, Backend& backend, Communicator& world);

  /// Zeroes the vector.
  void begin(Stream& stream);
  /// Device f64 [2]: where the head adds Σ loss and targets.
  double* sums() const { return slots() + parameters_.size(); }
  /// Squares of the gradients, sum over the world, factor and skip, update; then the one host wait of a step.
  Verdict step(const VerdictInputs& inputs, DataParallel& data, Optimizer& optimizer, Stream& stream);
  /// Σ loss and targets of the world, for evaluation.
  std::pair<double, double> world_sums(Stream& stream);

 private:
  double* slots() const { return reinterpret_cast<double*>(memory_.data()); }
  View slot_view() const { return View::vector(memory_.data(), parameters_.size() + 2, DType::f64); }

  const ParameterList& parameters_;
  Backend& backend_;
  Communicator& world_;
  DeviceMemory memory_;  // slots, then factor and skip in the last eight bytes
  float* factor_ = nullptr;
  std::int32_t* skip_ = nullptr;
  std::vector<double> host_;  // the same bytes on the host
};

}  // namespace espalier::app
