// A model of tests/fixtures/model on one rank, run by the executor with any kernel provider, precision, schedule and
// recomputation.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "host/plugin_host.hpp"
#include "interop/huggingface.hpp"
#include "interop/safetensors.hpp"
#include "model/decoder.hpp"
#include "model/gather.hpp"
#include "support/session_rig.hpp"

namespace espalier::testing_support {

using namespace espalier::app;

std::filesystem::path model_fixture(const std::string& path);
nlohmann::json read_json_fixture(const std::string& path);

/// Kernel providers that every parity test runs with: those that are built, or ESPALIER_TEST_PROVIDER alone, found in
/// ESPALIER_TEST_PLUGINS.
std::vector<std::string> providers();
/// As a suffix of a parametrised test's name.
inline std::string provider_name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

/// Another schedule with backward in halves: the weight halves come after everything else.
class HalvedSchedule final : public PipelineParallel {
 public:
  explicit HalvedSchedule(Owned<PipelineParallel> whole) : whole_(std::move(whole)) {}
  int stages() const override { return whole_->stages(); }
  int chunks() const override { return whole_->chunks(); }
  std::vector<int> cut(std::span<const double> layer_cost) const override { return whole_->cut(layer_cost); }
  Reason accepts(Mode mode, int micro_batches) const override { return whole_->accepts(mode, micro_batches); }
  std::vector<Instruction> schedule(Mode mode, int stage, int micro_batches) const override;

 private:
  Owned<PipelineParallel> whole_;
};

/// Samples [samples, seq + 1] cut into micro-batches of ids and targets.
class TokenBatches final : public BatchSource {
 public:
  /// @param first, count  the samples taken; count 0: all that follow.
  TokenBatches(const FileTensor& tokens, std::int64_t samples_per_batch, std::int64_t first = 0,
               std::int64_t count = 0);
  TokenBatches(std::vector<std::int64_t> tokens, std::int64_t width, std::int64_t samples_per_batch);
  MicroBatch micro_batch(int index) override;
  std::int64_t seq() const { return seq_; }
  /// Masks a target of the whole set.
  void mask(std::size_t target) { targets_[target] = -1; }

 private:
  std::int64_t seq_ = 0, per_batch_ = 0, first_ = 0;
  std::vector<std::int32_t> ids_, targets_;
};

/// Copies logits of a pass into [tokens, columns].
class LogitsCopy final : public LogitsSink {
 public:
  LogitsCopy(std::int64_t columns, Backend& backend) : columns_(columns), backend_(backend) {}
  void logits(int micro_batch, std::int64_t first_token, std::int64_t first_id, const View& logits) override;
  /// In order of tokens; micro-batches one after the other.
  std::vector<float> values;
  std::int64_t tokens_per_batch = 0;

 private:
  std::int64_t columns_;
  Backend& backend_;
};

struct ModelRigOptions {
  std::string provider = "reference";
  std::string optimizer;         ///< a plugin; empty: a GradientProbe in FP32
  std::vector<std::string> set;  ///< further keys, as --set takes them: "optimizer.betas=[0.9, 0.95]"
  bool probe = false;            ///< a GradientProbe with the optimizer's precision
  Recompute recompute = Recompute::none;
  bool split = false;
  double dropout = 0;
  /// Several ranks: the world (kept by pointer) and the sizes of its groups. Splits and schedules are the test
  /// doubles', the data strategy is parallel_zero.
  Communicator* world = nullptr;
  Grid grid;
  bool sequence_parallel = false;
  int zero_stage = 1;
  std::int64_t tokenizer_vocab = 0;  ///< 0: all of the vocabulary
};

class Rig {
 public:
  /// @param folder  below tests/fixtures/model: "tiny_a/hf".
  Rig(const std::string& folder, const ModelRigOptions& options, const std::vector<Walk>& walks);
  /// A model of a shape of its own, its weights from a seed.
  Rig(const ModelShape& shape, const ModelRigOptions& options, const std::vector<Walk>& walks);

  Executor& executor() { return rig_->executor(); }
  Optimizer& optimizer() { return probe_ != nullptr ? *probe_ : rig_->session().optimizer(); }
  const ParameterList& parameters() const { return *parameters_; }
  const RunFacts& facts() const { return facts_; }
  DataParallel& data() { return rig_->data(); }
  Backend& backend() { return rig_->backend(); }
  TensorParallel& tensor() { return rig_->tensor(); }
  /// Of a decoder on these weights, on one stage; the rig outlives it.
  DecoderSetup decoder_setup() {
    DecoderSetup setup;
    setup.facts = &facts();
    setup.parameters = &parameters();
    setup.local = executor().parameters();
    setup.backend = &backend();
    setup.tensor = &tensor();
    setup.data = &data();
    return setup;
  }
  std::vector<float> state(const Parameter& parameter, std::string_view name) {
    return gather_logical(parameter, name, data().state(), executor().parameters(), backend(), rig_->world());
  }

 private:
  void build(const ModelShape& shape, const ModelRigOptions& options, const std::vector<Walk>& walks);
  void replace_strategies(const ModelRigOptions& options, ExecutorSetup& setup);

  // What stands in for the recipe's: its stages need a block each, those of the doubles do not.
  RunFacts facts_;
  std::unique_ptr<ParameterList> parameters_;
  Owned<TensorParallel> tensor_;
  Owned<PipelineParallel> pipeline_;
  std::unique_ptr<SessionRig> rig_;
  std::unique_ptr<GradientProbe> probe_;
};

/// What one step over the batch of fwd_bwd.safetensors gives.
struct Outcome {
  double loss = 0;
  double norm = 0;
  std::vector<float> logits;  ///< of one rank; empty on several
  std::map<std::string, std::vector<float>> gradients;
};

/// Runs the two samples of tests/fixtures/model/<model>/fwd_bwd.safetensors in micro-batches of a size, shared out over
/// the data group.
Outcome run_forward_backward(const std::string& model, const ModelRigOptions& options, std::int64_t samples_per_batch);
/// Expects the float64 truth, within the tolerances that the fixture's README advises.
void expect_truth(const std::string& model, const Outcome& outcome);
void expect_equal_bits(const Outcome& a, const Outcome& b);

/// Largest |a − b|.
double largest_difference(std::span<const float> a, std::span<const float> b);
std::vector<float> read_all(const FileTensor& tensor);

}  // namespace espalier::testing_support
