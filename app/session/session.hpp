#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/recipe.hpp"
#include "host/plugin_host.hpp"
#include "session/host_context.hpp"
#include "telemetry/collective_check.hpp"
#include "telemetry/communicator_counters.hpp"
#include "train/executor.hpp"

namespace espalier::app {

/// Everything a run is assembled from, made in the order of docs/architecture.md section 8 ("Precision first"): plugins
/// → optimizer's precision → backend → groups → strategies → tokenizer and data → parameters and executor. No model
/// memory is reserved here. Destruction runs the other way. Collective over the world; every failure is thrown alike on
/// all ranks.
class Session {
 public:
  struct Needs {
    bool data = true;  ///< open the dataset
    bool text = true;  ///< make the tokenizer, whose ids bound the targets
    std::int64_t tokenizer_vocab =
        0;  ///< without a tokenizer: ids of the one the model was made for; 0: model.vocab_size
    std::function<void()> device_found = {};  ///< called when device and groups are there; nothing is read or written before
  };
  /// @param host  has loaded every plugin the recipe names (config/load.hpp).
  Session(Communicator& world, Recipe recipe, PluginHost& host, const Needs& needs);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// For host memory.
  Communicator& world() { return checked_world_ ? *checked_world_ : world_; }
  /// The same ranks, for memory of the backend's device.
  Communicator& device_world() { return *wrapped_world_; }
  const Recipe& recipe() const { return recipe_; }
  const RunFacts& facts() const { return services_.facts; }
  /// What this rank's groups of more than one rank have cost.
  CommCounters& comm_counters() { return *comm_counters_; }
  /// Before a step: what the collective check, if there is one, calls it.
  void begin_step(std::int64_t step);
  Backend& backend() { return *backend_; }
  /// As the components have it: wrapped for the device.
  Communicator& group(Group group) { return *services_.groups[static_cast<std::size_t>(group)]; }
  Optimizer& optimizer() { return *optimizer_; }
  TensorParallel& tensor() { return *tensor_; }
  PipelineParallel& pipeline() { return *pipeline_; }
  DataParallel& data_parallel() { return *data_parallel_; }
  /// Only with Needs::text.
  Tokenizer& tokenizer() { return *tokenizer_; }
  /// Only with Needs::data.
  Dataset& dataset() { return masked_dataset_ ? *masked_dataset_ : *dataset_; }
  const ParameterList& parameters() const { return *parameters_; }
  Executor& executor() { return *executor_; }
  /// What the executor was made of: another one may be made of it with a part replaced.
  const ExecutorSetup& executor_setup() const { return setup_; }
  Stream& stream() { return backend_->device().lane(Lane::compute); }
  int threads() const { return threads_->size(); }
  /// Backend, kernels and threads in one line: what a resume must have in common to be equal to the bit.
  std::string provider() const;

 private:
  template <class Interface>
  Owned<Interface> make(PluginHost& host, const PluginChoice& choice);
  void make_backend(PluginHost& host);
  void make_groups();
  void make_text(PluginHost& host, const Needs& needs);
  void make_model();

  Communicator& world_;
  Recipe recipe_;
  Services services_;
  std::unique_ptr<ThreadPool> threads_;
  std::vector<std::unique_ptr<ComponentHost>> hosts_;  ///< components keep references to theirs
  Owned<Optimizer> optimizer_;
  Owned<Backend> backend_;
  std::shared_ptr<CommCounters> comm_counters_ = std::make_shared<CommCounters>();
  std::shared_ptr<CollectiveCheck> check_;  ///< null: collectives are not checked
  std::unique_ptr<Communicator> checked_world_;  ///< world_ under the check, else null
  std::unique_ptr<Communicator> wrapped_world_, tensor_group_, data_group_, pipeline_group_;
  Owned<TensorParallel> tensor_;
  Owned<PipelineParallel> pipeline_;
  Owned<DataParallel> data_parallel_;
  std::unique_ptr<NamedData> named_data_;  ///< around data_parallel_, for the check
  Owned<Tokenizer> tokenizer_;
  Owned<Dataset> dataset_;
  std::unique_ptr<Dataset> masked_dataset_;  ///< with train.eod_mask_loss
  std::unique_ptr<ParameterList> parameters_;
  ExecutorSetup setup_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace espalier::app
