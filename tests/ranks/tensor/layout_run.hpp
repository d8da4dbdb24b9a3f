// A small model under a layout of tensor and data ranks, run by the executor with the plugins that users load. Batches
// and initial weights are functions of logical coordinates, so that runs of any two layouts can be compared.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "host/plugin_host.hpp"
#include "model/gather.hpp"
#include "session/host_context.hpp"
#include "telemetry/communicator_counters.hpp"
#include "train/executor.hpp"
#include "train/probe.hpp"

namespace espalier::testing_support {

using namespace espalier::app;

/// Two layers whose heads and ffn divide by 2, 3, 4 and 6; a vocabulary that divides by nothing, with two rows no token
/// has.
ModelShape small_model();

struct Layout {
  int tensor = 1, data = 1;
  bool sequence_parallel = false;
  bool overlap = true;
  std::string reduction = "rank_order";
  int zero = 1;
  std::string optimizer = "optim_fp32";
  std::string provider = "reference";
  Recompute recompute = Recompute::none;
  std::int64_t micro = 2;   ///< samples of a micro-batch
  std::int64_t global = 8;  ///< samples of a step
  bool probe = false;       ///< keeps gradients, changes no weights
  double std = 0.06;        ///< of initial weights
};
std::ostream& operator<<(std::ostream& out, const Layout& layout);

/// Tokens of sample s at position p, and which targets count: hashes of both.
class HashedBatches final : public BatchSource {
 public:
  HashedBatches(const ModelShape& shape, const Layout& layout, int data_rank, std::int64_t step);
  MicroBatch micro_batch(int index) override;
  /// Masks every target of sample s but the first `counts`.
  void keep(std::int64_t sample, std::int64_t counts);

 private:
  std::int64_t place(std::int64_t sample) const;  ///< of its first token in this rank's tokens; -1: another rank's

  std::int64_t seq_, micro_, data_, data_rank_, first_, samples_;
  std::vector<std::int32_t> ids_, targets_;
};

class LayoutRun {
 public:
  /// Collective over `world`, which has tensor · data ranks, tensor innermost.
  LayoutRun(Communicator& world, const ModelShape& model, const Layout& layout);

  Verdict step(std::int64_t number);
  Verdict step(BatchSource& batches, std::int64_t number);
  EvalResult evaluate(std::int64_t number);
  HashedBatches batches(std::int64_t number) const {
    return HashedBatches(services_.facts.model, layout_, services_.facts.grid.data_rank, number);
  }
  /// Every logical tensor of a state, whole, on every rank.
  std::map<std::string, std::vector<float>> gather(std::string_view state);

  const RunFacts& facts() const { return services_.facts; }
  const ParameterList& parameters() const { return *parameters_; }
  Executor& executor() { return *executor_; }
  DataParallel& data() { return *data_; }
  Optimizer& optimizer() { return probe_ ? *probe_ : *optimizer_; }
  Backend& backend() { return *backend_; }
  TensorParallel& tensor() { return *tensor_; }
  Communicator& world() { return *world_; }
  Communicator& tensor_group() { return *tensor_group_; }
  Stream& stream() { return backend_->device().lane(Lane::compute); }
  CommCounters& counters() { return *counters_; }

 private:
  template <class Interface>
  Owned<Interface> make(const std::string& plugin, std::map<std::string, ConfigValue::Data> options = {});
  void make_groups(Communicator& world);

  Layout layout_;
  PluginHost host_;
  Services services_;
  std::unique_ptr<ThreadPool> threads_;
  std::shared_ptr<CommCounters> counters_ = std::make_shared<CommCounters>();
  std::unique_ptr<Communicator> world_, tensor_group_, data_group_, pipeline_group_;
  std::vector<std::unique_ptr<ComponentHost>> hosts_;
  std::vector<std::unique_ptr<ConfigTable>> tables_;
  Owned<Optimizer> optimizer_;
  std::unique_ptr<GradientProbe> probe_;
  Owned<Backend> backend_;
  Owned<TensorParallel> tensor_;
  Owned<PipelineParallel> pipeline_;
  Owned<DataParallel> data_;
  std::unique_ptr<ParameterList> parameters_;
  std::unique_ptr<Executor> executor_;
  Walk train_, eval_;
};

/// The same model and batches on one rank, each rank for itself.
std::unique_ptr<LayoutRun> run_alone(const ModelShape& model, Layout layout);

/// Every element of every logical gradient is one rank's within `share` of the parameter's rms + 1e-8; key biases,
/// whose gradient is rounding noise, within 1e-8.
void expect_gradients(LayoutRun& run, LayoutRun& alone, double share);

}  // namespace espalier::testing_support
