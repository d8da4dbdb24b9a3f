#include "kernel_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace espalier::bench {
namespace {

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

}  // namespace

class KernelBench::Bench {
 public:
  Bench(Backend& backend, const KernelBenchSettings& settings, const RunFacts& facts)
      : backend_(backend),
        device_(backend.device()),
        kernels_(backend.kernels()),
        stream_(device_.lane(Lane::compute)),
        settings_(settings),
        shape_(facts.model),
        working_(facts.precision.working) {}

  Rates rates() {
    copy();
    peak();
    return {copy_rate_, peak_rate_};
  }
  void memory() {
    norm();
    elementwise();
    loss();
    update();
  }
  void products() {
    gemms();
    attention();
  }
  nlohmann::ordered_json rows() { return std::move(rows_); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::int64_t kSlots = 294;  ///< parameters of bloom-560m

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
  /// Of a kernel that moves next to nothing: what counts is how long it holds up the queue.
  void latency(const std::string& name, const std::function<void()>& call) {
    const double time = seconds(call);
    fmt::print("| {:44} | {:10.1f} us | {:>13} | {:>14} |\n", name, time * 1e6, "", "");
    rows_.push_back({{"name", name}, {"seconds", time}});
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
    bandwidth("layer norm backward", 3 * one, [&] {
      kernels_.norm->backward({y, x, w, mean, rstd, dx, {}, dw, db, true}, stream_);
    });
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
    const View sum = operands.vector(f, DType::f32);
    bandwidth("column sum", wide, [&] { kernels_.matrix->column_sum(x, sum, true, stream_); });
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
    bandwidth("add", 3 * narrow, [&] { kernels.add(src, residual, dst, stream_); });
    bandwidth("scale", 2 * narrow, [&] { kernels.scale(src, 0.5f, dst, stream_); });
    bandwidth("zeros", narrow, [&] { device_.fill_zero(dst, stream_); });
    bandwidth("add into f32", narrow + 2 * static_cast<double>(wide32.bytes()),
              [&] { kernels.add(src, wide32, wide32, stream_); });
    const double cast = narrow + static_cast<double>(wide32.bytes());
    bandwidth("cast to f32", cast, [&] { kernels.scale(src, 1.0f, wide32, stream_); });
    bandwidth("cast from f32", cast, [&] { kernels.scale(wide32, 1.0f, dst, stream_); });
    embedding(operands, src, dst);
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
    const View slots = operands.vector(2, DType::f64);
    latency("cross entropy: sum of losses", [&] { kernels.accumulate(losses, targets, slots, stream_); });
  }

  void update() {
    Operands operands(backend_);
    const std::int64_t n = settings_.tokens * shape_.hidden;
    UpdateKernels& kernels = *kernels_.update;
    // As in a step: asked on the device whether to skip, and for the factor.
    const View verdict = operands.vector(2, DType::f32);
    auto* const factor = verdict.as<float>();
    auto* const skip = reinterpret_cast<std::int32_t*>(factor + 1);
    device_.fill_zero(verdict, stream_);
    AdamW args;
    args.gradient = operands.vector(n, DType::f32);
    args.master = operands.vector(n, DType::f32);
    args.moment1 = operands.vector(n, DType::f32);
    args.moment2 = operands.vector(n, DType::f32);
    device_.fill_zero(args.moment2, stream_);  // a negative second moment has no root
    if (working_ != DType::f32) args.working = operands.vector(n, working_);
    args.lr = 1e-4;
    args.step = 10;
    args.factor = factor;
    args.skip = skip;
    const double one = 4.0 * static_cast<double>(n),
                 working = args.working ? static_cast<double>(args.working.bytes()) : 0;
    bandwidth("adamw", 7 * one + working, [&] { kernels.adamw(args, stream_); });
    const View x = args.gradient, y = args.master;
    bandwidth("update: scale", 2 * one, [&] { kernels.scale(x, 1.0, nullptr, skip, stream_); });
    bandwidth("update: lerp", 3 * one, [&] { kernels.lerp(y, x, 0.1, factor, skip, stream_); });
    bandwidth("update: axpy", 3 * one + working, [&] { kernels.axpy(0.1, x, y, args.working, factor, skip, stream_); });
    bandwidth("update: sign", 2 * one, [&] { kernels.sign(x, args.moment1, skip, stream_); });
    const View slots = operands.vector(kSlots + 2, DType::f64);
    bandwidth("squared sum", one, [&] { kernels.squared_sum(x, slots.as<double>(), stream_); });
    latency("verdict", [&] { kernels.verdict({slots.as<double>(), kSlots, 1.0, 1.0, 1.0}, factor, skip, stream_); });
  }

  void gemms() {
    const std::int64_t h = shape_.hidden;
    linear("qkv", 3 * h, h, settings_.tokens);
    linear("attention out", h, h, settings_.tokens);
    linear("h to 4h", shape_.ffn, h, settings_.tokens);
    linear("4h to h", h, shape_.ffn, settings_.tokens);
    linear("head", shape_.vocab, h, std::min<std::int64_t>(settings_.tokens, 2048));
    epilogues();
  }

  /// What a product may do besides, in its pass and by kernels after it: FLOP/s of the product in the time of both.
  void epilogues() {
    Operands operands(backend_);
    const std::int64_t t = settings_.tokens, h = shape_.hidden, f = shape_.ffn;
    const View x = operands.matrix(t, h, working_), up = operands.matrix(f, h, working_),
               down = operands.matrix(h, f, working_), bias = operands.vector(f, working_);
    const View before = operands.matrix(t, f, working_), after = operands.matrix(t, f, working_);
    const View weight_sum = operands.matrix(f, h, DType::f32), bias_sum = operands.vector(f, DType::f32);
    const double flops = 2.0 * static_cast<double>(t) * static_cast<double>(h) * static_cast<double>(f);
    MatrixKernels& matrix = *kernels_.matrix;
    ElementwiseKernels& elementwise = *kernels_.elementwise;
    Matmul forward{x, up, before, false, true, false, bias, 0, {}, {}, {}};
    forward.gelu = after;
    both_ways("h to 4h + bias + gelu", flops, forward, [&] {
      matrix.matmul({x, up, before, false, true, false, {}, 0, {}, {}, {}}, stream_);
      elementwise.bias_gelu(before, bias, after, stream_);
    });
    Matmul backward{x, down, after, false, false, false, {}, 0, {}, {}, {}};
    backward.gelu_src = before;
    both_ways("4h to h, input gradient + gelu gradient", flops, backward, [&] {
      matrix.matmul({x, down, after, false, false, false, {}, 0, {}, {}, {}}, stream_);
      elementwise.bias_gelu_backward(after, before, bias, after, stream_);
    });
    Matmul weight{after, x, weight_sum, true, false, true, {}, 0, {}, {}, {}};
    weight.sum_a = bias_sum;
    weight.add_sum = true;
    both_ways("h to 4h, weight + bias gradient", flops, weight, [&] {
      matrix.column_sum(after, bias_sum, true, stream_);
      matrix.matmul({after, x, weight_sum, true, false, true, {}, 0, {}, {}, {}}, stream_);
    });
  }

  template <class Kernels>
  void both_ways(const std::string& name, double flops, const Matmul& fused, const Kernels& kernels) {
    if (kernels_.matrix->fuses(fused)) {
      arithmetic(name + ", one pass", flops, [&] { kernels_.matrix->matmul(fused, stream_); });
    } else {
      fmt::print("| {:44} | the provider does not do it in one pass |\n", name);
    }
    arithmetic(name + ", kernels", flops, kernels);
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
  const KernelBenchSettings& settings_;
  const ModelShape& shape_;
  DType working_;
  double copy_rate_ = 0, peak_rate_ = 0;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

KernelBench::KernelBench(Backend& backend, const KernelBenchSettings& settings, const RunFacts& facts)
    : bench_(std::make_unique<Bench>(backend, settings, facts)) {}
KernelBench::~KernelBench() = default;
Rates KernelBench::rates() { return bench_->rates(); }
void KernelBench::memory() { bench_->memory(); }
void KernelBench::products() { bench_->products(); }
nlohmann::ordered_json KernelBench::rows() { return bench_->rows(); }

}  // namespace espalier::bench
