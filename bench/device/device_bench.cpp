// Speed of the kernels a recipe's backend has on its device, at the shapes of the recipe's model: element-wise kernels
// in bytes a second and as a share of a measured copy, GEMMs and attention in FLOP/s and as a share of a measured large
// GEMM.
//   device_bench RECIPE [--set KEY=VALUE]... [--tokens=16384] [--copy-bytes=536870912] [--peak=8192] [--seconds=0.1]
//   [--json=FILE]
// Bytes are those that must move: each operand read once, each result written once.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/open.hpp"
#include "espalier/communicator.hpp"
#include "session/session.hpp"

namespace {

using namespace espalier;

struct Settings {
  app::RecipeRequest recipe;
  std::int64_t tokens = 16384;
  std::int64_t copy_bytes = std::int64_t{512} << 20;
  std::int64_t peak = 8192;  ///< side of the square GEMM that stands for the device's peak
  double seconds = 0.1;      ///< of one measurement, repeated five times
  std::string json;
};

/// Device memory under one name, with random contents.
class Operands {
 public:
  explicit Operands(Backend& backend) : backend_(backend) {}
  View matrix(std::int64_t rows, std::int64_t cols, DType dtype) {
    memory_.push_back(backend_.device().reserve(static_cast<std::size_t>(rows * cols) * size_of(dtype), "bench"));
    const View view = View::matrix(memory_.back().data(), rows, cols, dtype);
    // Zeros would draw less power than real numbers and so flatter a GEMM.
    if (is_float(dtype)) {
      backend_.kernels().random->normal(view.flat(), {1, static_cast<std::uint32_t>(memory_.size())}, 0, 0.0, 0.5,
                                        backend_.device().lane(Lane::compute));
    }
    return view;
  }
  View vector(std::int64_t n, DType dtype) { return matrix(1, n, dtype); }

 private:
  static bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }
  Backend& backend_;
  std::vector<DeviceMemory> memory_;
};

class Bench {
 public:
  Bench(Backend& backend, const Settings& settings, const RunFacts& facts)
      : backend_(backend),
        device_(backend.device()),
        kernels_(backend.kernels()),
        stream_(device_.lane(Lane::compute)),
        settings_(settings),
        shape_(facts.model),
        working_(facts.precision.working) {}

  nlohmann::ordered_json run() {
    copy();
    peak();
    norm();
    elementwise();
    loss();
    update();
    gemms();
    attention();
    return {{"device", device_.name()},
            {"backend", backend_.description()},
            {"working", name_of(working_)},
            {"tokens", settings_.tokens},
            {"copy_gb_per_s", copy_rate_ * 1e-9},
            {"peak_tflop_per_s", peak_rate_ * 1e-12},
            {"kernels", rows_}};
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// Seconds of one call: the median of five series, each long enough to hide the wait at its end.
  double seconds(const std::function<void()>& call) {
    const auto series = [&](std::int64_t calls) {
      const auto begin = Clock::now();
      for (std::int64_t i = 0; i < calls; ++i) call();
      device_.wait(stream_);
      return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(calls);
    };
    series(2);  // plans, caches, clocks
    const double once = series(1);
    const auto calls =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(settings_.seconds / std::max(once, 1e-9)), 1, 10000);
    std::vector<double> all(5);
    std::generate(all.begin(), all.end(), [&] { return series(calls); });
    std::nth_element(all.begin(), all.begin() + 2, all.end());
    return all[2];
  }

  void bandwidth(const std::string& name, double bytes, const std::function<void()>& call) {
    const double time = seconds(call);
    const double rate = bytes / time;
    if (copy_rate_ == 0) copy_rate_ = rate;
    fmt::print("| {:44} | {:10.1f} us | {:8.1f} GB/s | {:5.1f} % of copy |\n", name, time * 1e6, rate * 1e-9,
               100 * rate / copy_rate_);
    rows_.push_back({{"name", name}, {"seconds", time}, {"bytes", bytes}, {"share_of_copy", rate / copy_rate_}});
  }
  void arithmetic(const std::string& name, double flops, const std::function<void()>& call) {
    const double time = seconds(call);
    const double rate = flops / time;
    if (peak_rate_ == 0) peak_rate_ = rate;
    fmt::print("| {:44} | {:10.1f} us | {:8.2f} TFLOP/s | {:5.1f} % of peak |\n", name, time * 1e6, rate * 1e-12,
               100 * rate / peak_rate_);
    rows_.push_back({{"name", name}, {"seconds", time}, {"flops", flops}, {"share_of_peak", rate / peak_rate_}});
  }

  void copy() {
    Operands operands(backend_);
    const View from = operands.vector(settings_.copy_bytes / 4, DType::f32);
    const View to = operands.vector(settings_.copy_bytes / 4, DType::f32);
    bandwidth("copy", 2.0 * static_cast<double>(from.bytes()), [&] { device_.copy(from, to, stream_); });
  }

  void peak() {
    Operands operands(backend_);
    const std::int64_t n = settings_.peak;
    const View a = operands.matrix(n, n, working_), b = operands.matrix(n, n, working_),
               dst = operands.matrix(n, n, working_);
    const double side = static_cast<double>(n);
    arithmetic(fmt::format("gemm {0} x {0} x {0}", n), 2 * side * side * side, [&] {
      kernels_.matrix->matmul({a, b, dst, false, true, false, {}, 0, {}, {}, {}}, stream_);
    });
  }

  void norm() {
    Operands operands(backend_);
    const std::int64_t t = settings_.tokens, h = shape_.hidden;
    const View x = operands.matrix(t, h, working_), w = operands.vector(h, working_), b = operands.vector(h, working_);
    const View y = operands.matrix(t, h, working_), mean = operands.vector(t, DType::f32),
               rstd = operands.vector(t, DType::f32);
    const View dx = operands.matrix(t, h, working_), dw = operands.vector(h, DType::f32),
               db = operands.vector(h, DType::f32);
    const auto one = static_cast<double>(x.bytes());
    bandwidth("layer norm", 2 * one, [&] { kernels_.norm->forward({x, w, b, y, mean, rstd, 1e-5f}, stream_); });
    bandwidth("layer norm backward, with residual", 4 * one, [&] {
      kernels_.norm->backward({y, x, w, mean, rstd, dx, x, dw, db, true}, stream_);
    });
  }

  void elementwise() {
    Operands operands(backend_);
    const std::int64_t t = settings_.tokens, h = shape_.hidden, f = shape_.ffn;
    const View x = operands.matrix(t, f, working_), b = operands.vector(f, working_),
               g = operands.matrix(t, f, working_);
    const View y = operands.matrix(t, f, working_);
    const auto wide = static_cast<double>(x.bytes());
    ElementwiseKernels& kernels = *kernels_.elementwise;
    bandwidth("bias + gelu", 2 * wide, [&] { kernels.bias_gelu(x, b, y, stream_); });
    bandwidth("bias + gelu backward", 3 * wide, [&] { kernels.bias_gelu_backward(g, x, b, y, stream_); });
    bandwidth("column sum", wide, [&] { kernels_.matrix->column_sum(x, operands_sum(operands, f), true, stream_); });
    const View src = operands.matrix(t, h, working_), residual = operands.matrix(t, h, working_);
    const View dst = operands.matrix(t, h, working_), bias = operands.vector(h, working_);
    const auto narrow = static_cast<double>(src.bytes());
    Dropout dropout;
    dropout.key = {1, 2};
    dropout.seq = shape_.seq_length;
    bandwidth("bias + residual", 3 * narrow,
              [&] { kernels.bias_dropout_add(src, bias, residual, dropout, dst, stream_); });
    dropout.p = 0.1f;
    bandwidth("bias + dropout + residual", 3 * narrow,
              [&] { kernels.bias_dropout_add(src, bias, residual, dropout, dst, stream_); });
    bandwidth("dropout backward", 2 * narrow, [&] { kernels.dropout_backward(src, dropout, dst, stream_); });
    const View wide32 = operands.matrix(t, h, DType::f32);
    bandwidth("add into f32", narrow + 2 * static_cast<double>(wide32.bytes()),
              [&] { kernels.add(src, wide32, wide32, stream_); });
    embedding(operands, src, dst);
  }

  View operands_sum(Operands& operands, std::int64_t columns) {
    if (sum_.cols != columns) sum_ = operands.vector(columns, DType::f32);
    return sum_;
  }

  void embedding(Operands& operands, const View& grad, const View& dst) {
    const std::int64_t t = settings_.tokens;
    std::vector<std::int32_t> host(static_cast<std::size_t>(t));
    for (std::int64_t i = 0; i < t; ++i) {
      host[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 7919 % shape_.vocab);
    }
    const View ids = operands.vector(t, DType::i32);
    device_.copy(View::vector(host.data(), t, DType::i32), ids, stream_);
    device_.wait(stream_);
    const View table = operands.matrix(shape_.vocab, shape_.hidden, working_);
    const View grads = operands.matrix(shape_.vocab, shape_.hidden, DType::f32);
    const auto rows = static_cast<double>(dst.bytes());
    bandwidth("embedding", 2 * rows, [&] { kernels_.elementwise->embedding(ids, table, 0, dst, stream_); });
    bandwidth("embedding backward", rows + 2 * 4.0 * static_cast<double>(t * shape_.hidden),
              [&] { kernels_.elementwise->embedding_backward(ids, grad, 0, grads, stream_); });
  }

  void loss() {
    Operands operands(backend_);
    const std::int64_t vocab = shape_.vocab;
    const std::int64_t t = std::min<std::int64_t>(settings_.tokens, 2048);  // the head works in pieces of this order
    const View logits = operands.matrix(t, vocab, DType::f32), most = operands.vector(t, DType::f32);
    const View sum = operands.vector(t, DType::f32), target = operands.vector(t, DType::f32);
    const View losses = operands.vector(t, DType::f32), targets = operands.vector(t, DType::i32);
    const View grad = working_ == DType::f32 ? logits : operands.matrix(t, vocab, working_);
    const auto all = static_cast<double>(logits.bytes());
    LossKernels& kernels = *kernels_.loss;
    bandwidth("cross entropy: row maximum", all, [&] { kernels.row_max(logits, vocab, most, stream_); });
    bandwidth("cross entropy: sum of exponentials", all,
              [&] { kernels.exp_sum(logits, vocab, most, targets, 0, sum, target, stream_); });
    bandwidth("cross entropy: gradient", all + static_cast<double>(grad.bytes()),
              [&] { kernels.gradient(logits, vocab, most, sum, target, targets, 0, 1e-3f, losses, grad, stream_); });
  }

  void update() {
    Operands operands(backend_);
    const std::int64_t n = settings_.tokens * shape_.hidden;
    AdamW args;
    args.gradient = operands.vector(n, DType::f32);
    args.master = operands.vector(n, DType::f32);
    args.moment1 = operands.vector(n, DType::f32);
    args.moment2 = operands.vector(n, DType::f32);
    device_.fill_zero(args.moment2, stream_);  // a negative second moment has no root
    if (working_ != DType::f32) args.working = operands.vector(n, working_);
    args.lr = 1e-4;
    args.step = 10;
    const double bytes = static_cast<double>(n) * (7 * 4.0 + (args.working ? 2.0 : 0.0));
    bandwidth("adamw", bytes, [&] { kernels_.update->adamw(args, stream_); });
    const View slot = operands.vector(1, DType::f64);
    bandwidth("squared sum", 4.0 * static_cast<double>(n),
              [&] { kernels_.update->squared_sum(args.gradient, slot.as<double>(), stream_); });
  }

  void gemms() {
    const std::int64_t h = shape_.hidden;
    linear("qkv", 3 * h, h, settings_.tokens);
    linear("attention out", h, h, settings_.tokens);
    linear("h to 4h", shape_.ffn, h, settings_.tokens);
    linear("4h to h", h, shape_.ffn, settings_.tokens);
    linear("head", shape_.vocab, h, std::min<std::int64_t>(settings_.tokens, 2048));
  }

  /// One linear map: forward, gradient of its input, gradient of its weight into an FP32 accumulator.
  void linear(const std::string& name, std::int64_t out, std::int64_t in, std::int64_t tokens) {
    Operands operands(backend_);
    const View x = operands.matrix(tokens, in, working_), weight = operands.matrix(out, in, working_);
    const View y = operands.matrix(tokens, out, working_), sum = operands.matrix(out, in, DType::f32);
    const double flops = 2.0 * static_cast<double>(out) * static_cast<double>(in) * static_cast<double>(tokens);
    MatrixKernels& kernels = *kernels_.matrix;
    arithmetic(name + ", forward", flops, [&] {
      kernels.matmul({x, weight, y, false, true, false, {}, 0, {}, {}, {}}, stream_);
    });
    arithmetic(name + ", input gradient", flops, [&] {
      kernels.matmul({y, weight, x, false, false, false, {}, 0, {}, {}, {}}, stream_);
    });
    arithmetic(name + ", weight gradient", flops, [&] {
      kernels.matmul({y, x, sum, true, false, true, {}, 0, {}, {}, {}}, stream_);
    });
  }

  void attention() {
    Operands operands(backend_);
    const std::int64_t seq = std::min(shape_.seq_length, settings_.tokens), batch = settings_.tokens / seq;
    const std::int64_t h = shape_.hidden, d = shape_.head_dim();
    const View qkv = operands.matrix(batch * seq, 3 * h, working_), out = operands.matrix(batch * seq, h, working_);
    const View grad_out = operands.matrix(batch * seq, h, working_),
               grads = operands.matrix(batch * seq, 3 * h, working_);
    const auto part = [&](const View& view, std::int64_t index) {
      return AttentionOperand{view.at(0, index * d), seq * 3 * h, 3 * h, 3 * d};
    };
    std::vector<float> host(static_cast<std::size_t>(shape_.heads));
    alibi_slopes(shape_.heads, host.data());
    const View slopes = operands.vector(shape_.heads, DType::f32);
    device_.copy(View::vector(host.data(), shape_.heads, DType::f32), slopes, stream_);
    device_.wait(stream_);
    Attention args;
    args.q = part(qkv, 0);
    args.k = part(qkv, 1);
    args.v = part(qkv, 2);
    args.out = {out.data, seq * h, h, d};
    args.dtype = working_;
    args.batch = batch;
    args.heads = shape_.heads;
    args.head_dim = d;
    args.queries = args.keys = seq;
    args.scale = 0.125f;
    args.slopes = slopes.as<float>();
    const View saved = operands.vector(static_cast<std::int64_t>(kernels_.attention->saved_bytes(args)), DType::u8);
    args.saved = saved;
    AttentionGradient gradient{args, {grad_out.data, seq * h, h, d}, part(grads, 0), part(grads, 1), part(grads, 2)};
    // Two products forward and five backward, over the half of them that the causal mask leaves.
    const double product = static_cast<double>(batch * shape_.heads * seq * seq * d);
    arithmetic("attention", 2 * product, [&] { kernels_.attention->forward(args, stream_); });
    arithmetic("attention backward", 5 * product, [&] { kernels_.attention->backward(gradient, stream_); });
  }

  Backend& backend_;
  Device& device_;
  const KernelSet& kernels_;
  Stream& stream_;
  const Settings& settings_;
  const ModelShape& shape_;
  DType working_;
  double copy_rate_ = 0, peak_rate_ = 0;
  View sum_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

Settings read(int argc, char** argv) {
  Settings settings;
  const auto value_of = [](const std::string& argument, std::string_view name, std::string& value) {
    if (argument.rfind(std::string(name) + "=", 0) != 0) return false;
    value = argument.substr(name.size() + 1);
    return true;
  };
  std::string value;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--set" && i + 1 < argc) {
      settings.recipe.overrides.emplace_back(argv[++i]);
    } else if (value_of(argument, "--tokens", value)) {
      settings.tokens = std::stoll(value);
    } else if (value_of(argument, "--copy-bytes", value)) {
      settings.copy_bytes = std::stoll(value);
    } else if (value_of(argument, "--peak", value)) {
      settings.peak = std::stoll(value);
    } else if (value_of(argument, "--seconds", value)) {
      settings.seconds = std::stod(value);
    } else if (value_of(argument, "--json", value)) {
      settings.json = value;
    } else if (settings.recipe.file.empty() && argument.rfind("--", 0) != 0) {
      settings.recipe.file = argument;
    } else {
      throw ConfigError("device_bench: unknown argument " + argument);
    }
  }
  if (settings.recipe.file.empty()) throw ConfigError("device_bench: name a recipe");
  return settings;
}

}  // namespace

int main(int argc, char** argv) try {
  Settings settings = read(argc, argv);
  settings.recipe.any_replicas = true;
  const auto world = make_world_communicator();
  app::OpenRecipe open = app::open_recipe(settings.recipe, *world);
  app::Session session(*world, std::move(open.recipe), *open.plugins, {false, false, 0});
  fmt::print("{}\n", session.backend().description());
  const nlohmann::ordered_json result = Bench(session.backend(), settings, session.facts()).run();
  if (!settings.json.empty()) {
    std::ofstream file(settings.json);
    file << result.dump(1) << "\n";
    if (!file.flush()) throw IoError("device_bench: cannot write " + settings.json);
  }
  return 0;
} catch (const espalier::Error& error) {
  std::cerr << error.what() << "\n";
  return static_cast<int>(error.exit_code());
}
