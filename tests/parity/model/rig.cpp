#include "parity/model/rig.hpp"

#include <algorithm>
#include <fstream>

#include "session/builtins.hpp"

namespace espalier::testing_support {

std::filesystem::path model_fixture(const std::string& path) {
  return std::filesystem::path(ESPALIER_FIXTURES_DIR) / "model" / path;
}

nlohmann::json read_json_fixture(const std::string& path) {
  std::ifstream file(model_fixture(path));
  return nlohmann::json::parse(file);
}

std::vector<std::string> providers() {
#ifdef ESPALIER_TEST_FUSED
  return {"reference", "kernels_fused"};
#else
  return {"reference"};
#endif
}

std::vector<Instruction> SplitSchedule::schedule(Mode mode, int, int micro_batches) const {
  std::vector<Instruction> list;
  for (int m = 0; m < micro_batches; ++m) {
    list.push_back({Do::forward, m, 0, 0});
    if (mode == Mode::train && m > 0) list.push_back({Do::backward_input, m - 1, 0, 0});
  }
  if (mode == Mode::forward_only) return list;
  list.push_back({Do::backward_input, micro_batches - 1, 0, 0});
  for (int m = 0; m < micro_batches; ++m) list.push_back({Do::backward_weight, m, 0, 0});
  list.push_back({Do::reduce_gradients, 0, 0, 0});
  list.push_back({Do::reduce_tied_gradients, 0, 0, 0});
  list.push_back({Do::step, 0, 0, 0});
  return list;
}

TokenBatches::TokenBatches(const FileTensor& tokens, std::int64_t samples_per_batch)
    : TokenBatches(read_i64(tokens), tokens.shape.back(), samples_per_batch) {}

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
  return {ids_.data() + first, targets_.data() + first, index * per_batch_};
}

void LogitsCopy::logits(int micro_batch, std::int64_t first_token, std::int64_t first_id, const View& logits) {
  const std::int64_t row = micro_batch * tokens_per_batch + first_token;
  values.resize(std::max(values.size(), static_cast<std::size_t>((row + logits.rows) * columns_)));
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    const std::int64_t n = std::min(logits.cols, columns_ - first_id);
    std::copy_n(logits.row<float>(r), n, values.data() + (row + r) * columns_ + first_id);
  }
}

template <class Interface>
Owned<Interface> Rig::make(const std::string& plugin, const ConfigTable& options) {
  const LoadedPlugin& loaded = host_.load(plugin);
  auto table = std::make_unique<ConfigTable>(options);
  std::vector<ConfigProblem> problems;
  check_options(*table, "test", loaded.options<Interface>(), {}, problems);
  throw_if_any(problems);
  hosts_.push_back(std::make_unique<ComponentHost>(plugin, services_));
  tables_.push_back(std::move(table));
  return host_.create<Interface>(loaded, ConfigView(*tables_.back(), "test"), *hosts_.back());
}

Rig::Rig(const std::string& folder, const RigOptions& options, const std::vector<Walk>& walks)
    : host_(std::vector<std::filesystem::path>{std::filesystem::path(ESPALIER_PLUGIN_DIR)}),
      threads_(make_thread_pool(1)),
      world_(make_self_communicator("world")) {
  add_builtins(host_);
  const HuggingFaceFolder model(model_fixture(folder));
  services_.facts.model = model.shape();
  services_.facts.model.attention_dropout = services_.facts.model.hidden_dropout = options.dropout;
  if (options.tokenizer_vocab > 0) services_.facts.model.tokenizer_vocab = options.tokenizer_vocab;
  services_.threads = threads_.get();
  for (Communicator*& group : services_.groups) group = world_.get();
  const std::string optimizer = options.optimizer.empty() ? "optim_fp32" : options.optimizer;
  optimizer_ = make<Optimizer>(optimizer, options.optimizer_options);
  used_optimizer_ = optimizer_.get();
  if (options.probe || options.optimizer.empty()) {
    probe_ = std::make_unique<GradientProbe>(*optimizer_);
    used_optimizer_ = probe_.get();
  }
  services_.facts.precision = optimizer_->precision();
  backend_ = make<Backend>(options.provider);
  services_.backend = backend_.get();
  tensor_ = make<TensorParallel>("none");
  pipeline_ = options.split ? own<PipelineParallel>(std::make_unique<SplitSchedule>()) : make<PipelineParallel>("none");
  data_ = make<DataParallel>("none");
  parameters_ = std::make_unique<ParameterList>(services_.facts.model);

  ExecutorSetup setup;
  setup.facts = &services_.facts;
  setup.parameters = parameters_.get();
  setup.backend = backend_.get();
  setup.tensor = tensor_.get();
  setup.pipeline = pipeline_.get();
  setup.data = data_.get();
  setup.world = world_.get();
  setup.pipeline_group = world_.get();
  setup.recompute = options.recompute;
  executor_ = std::make_unique<Executor>(setup);
  executor_->bind(walks, *used_optimizer_);
  load_weights(model, *parameters_, executor_->parameters(), *data_, *backend_);
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
