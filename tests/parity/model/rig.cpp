#include "parity/model/rig.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "model/initialise.hpp"
#include "parity/model/sequence_double.hpp"
#include "support/doubles/gpipe_double.hpp"
#include "support/doubles/tensor_double.hpp"

namespace espalier::testing_support {

std::filesystem::path model_fixture(const std::string& path) {
  return std::filesystem::path(ESPALIER_FIXTURES_DIR) / "model" / path;
}

nlohmann::json read_json_fixture(const std::string& path) {
  std::ifstream file(model_fixture(path));
  return nlohmann::json::parse(file);
}

std::vector<std::string> providers() {
  if (const char* only = std::getenv("ESPALIER_TEST_PROVIDER")) return {only};
#ifdef ESPALIER_TEST_FUSED
  return {"reference", "kernels_fused"};
#else
  return {"reference"};
#endif
}

std::vector<Instruction> HalvedSchedule::schedule(Mode mode, int stage, int micro_batches) const {
  std::vector<Instruction> list;
  std::vector<Instruction> weights;
  for (Instruction at : whole_->schedule(mode, stage, micro_batches)) {
    if (at.what == Do::backward) {
      weights.push_back({Do::backward_weight, at.micro_batch, at.chunk, 0});
      at.what = Do::backward_input;
    } else if (at.what == Do::reduce_gradients) {
      list.insert(list.end(), weights.begin(), weights.end());
    }
    list.push_back(at);
  }
  return list;
}

namespace {

std::vector<std::int64_t> some_rows(const FileTensor& tokens, std::int64_t first, std::int64_t count) {
  const std::vector<std::int64_t> all = read_i64(tokens);
  const std::int64_t width = tokens.shape.back();
  const std::int64_t end = count == 0 ? tokens.shape.front() : first + count;
  return {all.begin() + first * width, all.begin() + end * width};
}

}  // namespace

TokenBatches::TokenBatches(const FileTensor& tokens, std::int64_t samples_per_batch, std::int64_t first,
                           std::int64_t count)
    : TokenBatches(some_rows(tokens, first, count), tokens.shape.back(), samples_per_batch) {
  first_ = first;
}

TokenBatches::TokenBatches(std::vector<std::int64_t> tokens, std::int64_t width, std::int64_t samples_per_batch)
    : seq_(width - 1), per_batch_(samples_per_batch) {
  for (std::size_t row = 0; row < tokens.size(); row += static_cast<std::size_t>(width)) {
    for (std::int64_t i = 0; i < seq_; ++i) {
      ids_.push_back(static_cast<std::int32_t>(tokens[row + static_cast<std::size_t>(i)]));
      targets_.push_back(static_cast<std::int32_t>(tokens[row + static_cast<std::size_t>(i) + 1]));
    }
  }
}

MicroBatch TokenBatches::micro_batch(int index) {
  const auto first = static_cast<std::size_t>(index * per_batch_ * seq_);
  return {ids_.data() + first, targets_.data() + first, first_ + index * per_batch_};
}

void LogitsCopy::logits(int micro_batch, std::int64_t first_token, std::int64_t first_id, const View& logits) {
  const std::int64_t row = micro_batch * tokens_per_batch + first_token;
  values.resize(std::max(values.size(), static_cast<std::size_t>((row + logits.rows) * columns_)));
  const std::int64_t n = std::min(logits.cols, columns_ - first_id);
  Device& device = backend_.device();
  Stream& stream = device.lane(Lane::compute);
  device.copy(logits.col_range(0, n),
              View{values.data() + row * columns_ + first_id, logits.rows, n, columns_, DType::f32}, stream);
  device.wait(stream);
}

void Rig::replace_strategies(const ModelRigOptions& options, ExecutorSetup& setup) {
  const Grid& grid = options.grid;
  if (grid.tensor > 1 && options.sequence_parallel) {
    tensor_ = own<TensorParallel>(std::make_unique<SequenceDouble>(*setup.tensor_group));
  } else if (grid.tensor > 1) {
    tensor_ = own<TensorParallel>(std::make_unique<TensorDouble>(*setup.tensor_group));
  }
  if (tensor_ != nullptr) setup.tensor = tensor_.get();
  pipeline_ = grid.pipeline == 1 ? own<PipelineParallel>(make_single_stage())
                                 : own<PipelineParallel>(std::make_unique<GpipeDouble>(grid.pipeline));
  if (options.split) pipeline_ = own<PipelineParallel>(std::make_unique<HalvedSchedule>(std::move(pipeline_)));
  setup.pipeline = pipeline_.get();
}

Rig::Rig(const std::string& folder, const ModelRigOptions& options, const std::vector<Walk>& walks) {
  const HuggingFaceFolder model(model_fixture(folder));
  build(model.shape(), options, walks);
  load_weights(model, executor().parameters(), data(), backend());
}

Rig::Rig(const ModelShape& shape, const ModelRigOptions& options, const std::vector<Walk>& walks) {
  build(shape, options, walks);
  initialise(shape, {0.2, EmbeddingInit::normal, 11}, executor().parameters(), data(), backend());
}

void Rig::build(const ModelShape& shape, const ModelRigOptions& options, const std::vector<Walk>& walks) {
  const auto alone = make_self_communicator("world");
  Communicator& world = options.world != nullptr ? *options.world : *alone;
  ModelShape model = shape;
  model.attention_dropout = model.hidden_dropout = options.dropout;
  model.seq_length = std::max<std::int64_t>(model.positions, 1);  // each walk has its own
  for (const Walk& walk : walks) model.seq_length = std::max(model.seq_length, walk.seq);

  RigOptions rig;
  rig.tensor = options.grid.tensor;
  rig.pipeline = options.grid.pipeline;
  rig.tokenizer_vocab = options.tokenizer_vocab > 0 ? options.tokenizer_vocab : shape.tokenizer_vocab;
  model.layers = std::max<std::int64_t>(model.layers, rig.pipeline);
  rig.set = keys_of(model);
  rig.set.push_back("backend.plugin=" + options.provider);
  if (const char* folder = std::getenv("ESPALIER_TEST_PLUGINS")) {
    rig.set.push_back("plugins.search_path=[\"" + std::string(folder) + "\", \"" ESPALIER_PLUGIN_DIR "\"]");
  }
  rig.set.push_back("optimizer.plugin=" + (options.optimizer.empty() ? "optim_fp32" : options.optimizer));
  const auto none = [&](const char* strategy) {
    rig.set.push_back("parallel." + std::string(strategy) + ".plugin=none");
  };
  if (rig.tensor == 1) none("tensor");
  if (rig.pipeline == 1) none("pipeline");
  if (options.grid.world() == 1) {
    none("data");
  } else {
    rig.set.push_back("parallel.data.stage=" + std::to_string(options.zero_stage));
  }
  rig.set.insert(rig.set.end(), options.set.begin(), options.set.end());
  rig.change = [&](ExecutorSetup& setup) {
    facts_ = *setup.facts;
    facts_.model.layers = shape.layers;
    parameters_ = std::make_unique<ParameterList>(facts_.model);
    setup.facts = &facts_;
    setup.parameters = parameters_.get();
    setup.recompute = options.recompute;
    replace_strategies(options, setup);
  };
  rig_ = std::make_unique<SessionRig>(world, rig);
  if (options.probe || options.optimizer.empty()) {
    probe_ = std::make_unique<GradientProbe>(rig_->session().optimizer());
  }
  rig_->bind(walks, optimizer());
}

Outcome run_forward_backward(const std::string& model, const ModelRigOptions& options, std::int64_t samples_per_batch) {
  const SafetensorsFile fixture(model_fixture(model + "/fwd_bwd.safetensors"));
  const FileTensor& tokens = fixture.at("input_ids");
  const std::int64_t share = 2 / options.grid.data;
  const Walk walk{Mode::train, samples_per_batch, tokens.shape.back() - 1, static_cast<int>(share / samples_per_batch)};
  Rig rig(model + "/hf", options, {walk});
  TokenBatches batches(tokens, samples_per_batch, share * rig.facts().grid.data_rank, share);
  LogitsCopy copy(rig.facts().model.vocab, rig.backend());
  copy.tokens_per_batch = samples_per_batch * batches.seq();
  if (options.world == nullptr) rig.executor().watch_logits(&copy);
  const Verdict verdict = rig.executor().train_step(walk, batches, {}, rig.optimizer());
  EXPECT_TRUE(verdict.finite);
  EXPECT_EQ(verdict.tokens, 2 * batches.seq());
  Outcome outcome{verdict.loss_sum / static_cast<double>(verdict.tokens), verdict.norm, copy.values, {}};
  for (const Parameter& parameter : rig.parameters().all()) {
    outcome.gradients[std::string(parameter.name)] = rig.state(parameter, GradientProbe::kState);
  }
  return outcome;
}

void expect_equal_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.norm, b.norm);
  EXPECT_EQ(a.logits, b.logits);
  for (const auto& [name, gradient] : a.gradients) EXPECT_EQ(gradient, b.gradients.at(name)) << name;
}

void expect_truth(const std::string& model, const Outcome& outcome) {
  const SafetensorsFile fixture(model_fixture(model + "/fwd_bwd.safetensors"));
  const nlohmann::json facts = read_json_fixture(model + "/fwd_bwd.json");
  if (!outcome.logits.empty()) {
    EXPECT_LE(largest_difference(outcome.logits, read_all(fixture.at("logits"))), 2e-5);
  }
  EXPECT_NEAR(outcome.loss, facts["loss"].get<double>(), 5e-6);
  const double norm = facts["grad_norm"].get<double>();
  EXPECT_NEAR(outcome.norm, norm, 1e-5 * norm);
  std::size_t compared = 0;
  for (const FileTensor& tensor : fixture.tensors()) {
    const std::string prefix = "grad.transformer.";
    if (tensor.name.compare(0, prefix.size(), prefix) != 0) continue;
    const double rms = facts["deviation_of_hf_fp32_from_float64"][tensor.name]["ref_rms"].get<double>();
    const auto& gradient = outcome.gradients.at(tensor.name.substr(prefix.size()));
    EXPECT_LE(largest_difference(gradient, read_all(tensor)), 5e-5 * rms + 1e-8) << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, outcome.gradients.size());
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = difference;  // NaN stays
  }
  return largest;
}

std::vector<float> read_all(const FileTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  read_f32(tensor, 0, values);
  return values;
}

}  // namespace espalier::testing_support
