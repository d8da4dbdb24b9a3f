// Speed of each kernel, fused against reference, at the shapes of a small model: 1,024 tokens, hidden 256, vocabulary
// 8,192.
//   kernels_bench [--set=auto|avx2|avx512|avx512_bf16|amx] [--threads=1] [Google Benchmark's options]
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "espalier/dtype.hpp"
#include "espalier/random.hpp"
#include "espalier/threads.hpp"
#include "fused_backend.hpp"

namespace {

using namespace espalier;

struct Providers {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> fused, reference;
};
Providers providers;

/// A matrix of small random numbers in device memory.
class Matrix {
 public:
  Matrix(Backend& backend, DType dtype, std::int64_t rows, std::int64_t cols)
      : memory_(backend.device().reserve(static_cast<std::size_t>(rows * cols) * size_of(dtype), "bench")),
        view_(View::matrix(memory_.data(), rows, cols, dtype)) {
    with_float_type(dtype, [&](auto type) {
      using T = decltype(type);
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        const PhiloxCounter words = philox({1, 2}, {static_cast<std::uint32_t>(i), 0, 0, 0});
        view_.as<T>()[i] = from_float<T>(static_cast<float>(words[0]) * 0x1p-32f - 0.5f);
      }
    });
  }
  operator const View&() const { return view_; }
  const View& view() const { return view_; }

 private:
  DeviceMemory memory_;
  View view_;
};

struct Case {
  Backend& backend;
  DType dtype;
  const KernelSet& kernels = backend.kernels();
  Stream& stream = backend.device().lane(Lane::compute);

  Matrix working(std::int64_t rows, std::int64_t cols) const { return {backend, dtype, rows, cols}; }
  Matrix f32(std::int64_t rows, std::int64_t cols) const { return {backend, DType::f32, rows, cols}; }
};

using Body = void (*)(const Case&, benchmark::State&);

void set_flops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

template <std::int64_t m, std::int64_t n, std::int64_t k>
void forward_gemm(const Case& c, benchmark::State& state) {
  const Matrix a = c.working(m, k), b = c.working(n, k), dst = c.working(m, n);
  for (auto _ : state) c.kernels.matrix->matmul({a, b, dst, false, true, false, {}, 0, {}, {}, {}}, c.stream);
  set_flops(state, 2.0 * m * n * k);
}
template <std::int64_t m, std::int64_t n, std::int64_t k>
void data_gradient_gemm(const Case& c, benchmark::State& state) {
  const Matrix a = c.working(m, k), b = c.working(k, n), dst = c.working(m, n);
  for (auto _ : state) c.kernels.matrix->matmul({a, b, dst, false, false, false, {}, 0, {}, {}, {}}, c.stream);
  set_flops(state, 2.0 * m * n * k);
}
template <std::int64_t m, std::int64_t n, std::int64_t k>
void weight_gradient_gemm(const Case& c, benchmark::State& state) {
  const Matrix a = c.working(k, m), b = c.working(k, n), dst = c.f32(m, n);
  for (auto _ : state) c.kernels.matrix->matmul({a, b, dst, true, false, true, {}, 0, {}, {}, {}}, c.stream);
  set_flops(state, 2.0 * m * n * k);
}

template <std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim, bool backward>
void attention(const Case& c, benchmark::State& state) {
  const std::int64_t hidden = heads * head_dim;
  const Matrix qkv = c.working(batch * seq, 3 * hidden), out = c.working(batch * seq, hidden);
  const Matrix grad_out = c.working(batch * seq, hidden), grad_qkv = c.working(batch * seq, 3 * hidden);
  std::vector<float> slopes(static_cast<std::size_t>(heads));
  alibi_slopes(heads, slopes.data());
  Attention args;
  const auto part = [&](const Matrix& matrix, std::int64_t index) {
    return AttentionOperand{matrix.view().at(0, index * head_dim), seq * 3 * hidden, 3 * hidden, 3 * head_dim};
  };
  args.q = part(qkv, 0);
  args.k = part(qkv, 1);
  args.v = part(qkv, 2);
  args.out = {out.view().data, seq * hidden, hidden, head_dim};
  args.dtype = c.dtype;
  args.batch = batch;
  args.heads = heads;
  args.head_dim = head_dim;
  args.queries = args.keys = seq;
  args.scale = 0.125f;
  args.slopes = slopes.data();
  const DeviceMemory saved = c.backend.device().reserve(c.kernels.attention->saved_bytes(args), "bench");
  args.saved = View::vector(saved.data(), static_cast<std::int64_t>(saved.bytes()), DType::u8);
  AttentionGradient gradient;
  gradient.forward = args;
  gradient.grad_out = {grad_out.view().data, seq * hidden, hidden, head_dim};
  gradient.grad_q = part(grad_qkv, 0);
  gradient.grad_k = part(grad_qkv, 1);
  gradient.grad_v = part(grad_qkv, 2);
  c.kernels.attention->forward(args, c.stream);
  for (auto _ : state) {
    if (backward) {
      c.kernels.attention->backward(gradient, c.stream);
    } else {
      c.kernels.attention->forward(args, c.stream);
    }
  }
  // Of the half of the products that the mask leaves: 2 products forward, 5 backward.
  set_flops(state, (backward ? 5.0 : 2.0) * static_cast<double>(batch * heads * seq * seq * head_dim));
}

constexpr std::int64_t kTokens = 1024, kHidden = 256, kFfn = 4 * kHidden, kVocab = 8192;

void norm_forward(const Case& c, benchmark::State& state) {
  const Matrix x = c.working(kTokens, kHidden), w = c.working(1, kHidden), b = c.working(1, kHidden);
  const Matrix y = c.working(kTokens, kHidden), mean = c.f32(1, kTokens), rstd = c.f32(1, kTokens);
  for (auto _ : state) c.kernels.norm->forward({x, w, b, y, mean, rstd, 1e-5f}, c.stream);
}
void norm_backward(const Case& c, benchmark::State& state) {
  const Matrix x = c.working(kTokens, kHidden), w = c.working(1, kHidden), b = c.working(1, kHidden);
  const Matrix y = c.working(kTokens, kHidden), mean = c.f32(1, kTokens), rstd = c.f32(1, kTokens);
  const Matrix dx = c.working(kTokens, kHidden), dw = c.f32(1, kHidden), db = c.f32(1, kHidden);
  c.kernels.norm->forward({x, w, b, y, mean, rstd, 1e-5f}, c.stream);
  for (auto _ : state) c.kernels.norm->backward({y, x, w, mean, rstd, dx, x, dw, db, true}, c.stream);
}
void gelu(const Case& c, benchmark::State& state) {
  const Matrix x = c.working(kTokens, kFfn), b = c.working(1, kFfn), y = c.working(kTokens, kFfn);
  for (auto _ : state) c.kernels.elementwise->bias_gelu(x, b, y, c.stream);
}
void gelu_backward(const Case& c, benchmark::State& state) {
  const Matrix x = c.working(kTokens, kFfn), b = c.working(1, kFfn), g = c.working(kTokens, kFfn);
  const Matrix dx = c.working(kTokens, kFfn);
  for (auto _ : state) c.kernels.elementwise->bias_gelu_backward(g, x, b, dx, c.stream);
}
void residual_sum(const Case& c, benchmark::State& state) {
  const Matrix x = c.working(kTokens, kHidden), b = c.working(1, kHidden), r = c.working(kTokens, kHidden);
  const Matrix y = c.working(kTokens, kHidden);
  for (auto _ : state) c.kernels.elementwise->bias_dropout_add(x, b, r, {}, y, c.stream);
}
void residual_sum_dropout(const Case& c, benchmark::State& state) {
  const Matrix x = c.working(kTokens, kHidden), b = c.working(1, kHidden), r = c.working(kTokens, kHidden);
  const Matrix y = c.working(kTokens, kHidden);
  Dropout dropout;
  dropout.p = 0.1f;
  dropout.key = {1, 2};
  dropout.seq = kTokens;
  for (auto _ : state) c.kernels.elementwise->bias_dropout_add(x, b, r, dropout, y, c.stream);
}
void column_sum(const Case& c, benchmark::State& state) {
  const Matrix x = c.working(kTokens, kFfn), sum = c.f32(1, kFfn);
  for (auto _ : state) c.kernels.matrix->column_sum(x, sum, true, c.stream);
}
void cross_entropy(const Case& c, benchmark::State& state) {
  const Matrix logits = c.f32(kTokens, kVocab), grad = c.working(kTokens, kVocab), most = c.f32(1, kTokens);
  const Matrix sum = c.f32(1, kTokens), target = c.f32(1, kTokens), loss = c.f32(1, kTokens);
  std::vector<std::int32_t> ids(kTokens, 17);
  const View targets = View::vector(ids.data(), kTokens, DType::i32);
  for (auto _ : state) {
    c.kernels.loss->row_max(logits, kVocab, most, c.stream);
    c.kernels.loss->exp_sum(logits, kVocab, most, targets, 0, sum, target, c.stream);
    c.kernels.loss->gradient(logits, kVocab, most, sum, target, targets, 0, 1e-3f, loss, grad, c.stream);
  }
}
void adamw(const Case& c, benchmark::State& state) {
  constexpr std::int64_t n = 1 << 20;
  const Matrix g = c.f32(1, n), w = c.f32(1, n), m = c.f32(1, n), v = c.f32(1, n), working = c.working(1, n);
  AdamW args;
  args.gradient = g;
  args.master = w;
  args.moment1 = m;
  args.moment2 = v;
  std::memset(v.view().data, 0, v.view().bytes());
  if (c.dtype != DType::f32) args.working = working;
  args.lr = 1e-4;
  args.step = 10;
  for (auto _ : state) c.kernels.update->adamw(args, c.stream);
}
void squared_sum(const Case& c, benchmark::State& state) {
  const Matrix x = c.f32(1, 1 << 20);
  double slot = 0;
  for (auto _ : state) c.kernels.update->squared_sum(x, &slot, c.stream);
  benchmark::DoNotOptimize(slot);
}

struct Entry {
  const char* name;
  Body body;
};
constexpr Entry kEntries[] = {
    {"gemm forward 1024x256x256", forward_gemm<1024, 256, 256>},
    {"gemm forward 1024x768x256", forward_gemm<1024, 768, 256>},
    {"gemm forward 1024x1024x256", forward_gemm<1024, 1024, 256>},
    {"gemm forward 1024x256x1024", forward_gemm<1024, 256, 1024>},
    {"gemm head forward 1024x8192x256", forward_gemm<1024, 8192, 256>},
    {"gemm data gradient 1024x256x1024", data_gradient_gemm<1024, 256, 1024>},
    {"gemm data gradient 1024x1024x256", data_gradient_gemm<1024, 1024, 256>},
    {"gemm head data gradient 1024x256x8192", data_gradient_gemm<1024, 256, 8192>},
    {"gemm weight gradient 256x256x1024", weight_gradient_gemm<256, 256, 1024>},
    {"gemm weight gradient 1024x256x1024", weight_gradient_gemm<1024, 256, 1024>},
    {"gemm weight gradient 256x1024x1024", weight_gradient_gemm<256, 1024, 1024>},
    {"gemm head weight gradient 8192x256x1024", weight_gradient_gemm<8192, 256, 1024>},
    {"attention forward 4x256x8x32", attention<4, 256, 8, 32, false>},
    {"attention backward 4x256x8x32", attention<4, 256, 8, 32, true>},
    {"attention forward 2x512x8x64", attention<2, 512, 8, 64, false>},
    {"attention backward 2x512x8x64", attention<2, 512, 8, 64, true>},
    {"attention forward 1x2048x4x128", attention<1, 2048, 4, 128, false>},
    {"attention backward 1x2048x4x128", attention<1, 2048, 4, 128, true>},
    {"norm forward", norm_forward},
    {"norm backward", norm_backward},
    {"bias gelu", gelu},
    {"bias gelu backward", gelu_backward},
    {"residual sum", residual_sum},
    {"residual sum with dropout", residual_sum_dropout},
    {"column sum", column_sum},
    {"cross entropy, forward and gradient", cross_entropy},
    {"adamw, 2^20 parameters", adamw},
    {"squared sum, 2^20", squared_sum},
};

void add_all(const std::string& provider, Backend& backend) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Entry& entry : kEntries) {
      const std::string name = provider + "/" + std::string(name_of(dtype)) + "/" + entry.name;
      benchmark::RegisterBenchmark(name.c_str(), [&entry, &backend, dtype](benchmark::State& state) {
        entry.body(Case{backend, dtype}, state);
      })->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::string set = "auto";
  int threads = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--set=", 0) == 0) {
      set = argument.substr(6);
    } else if (argument.rfind("--threads=", 0) == 0) {
      threads = std::stoi(argument.substr(10));
    } else {
      benchmark::ReportUnrecognizedArguments(argc, argv);
      return 2;
    }
  }
  providers.pool = make_thread_pool(threads);
  providers.fused = std::make_unique<kernels_fused::FusedBackend>(set, *providers.pool);
  providers.reference = make_reference_backend(*providers.pool);
  benchmark::AddCustomContext("fused", providers.fused->description());
  add_all("fused", *providers.fused);
  add_all("reference", *providers.reference);
  benchmark::RunSpecifiedBenchmarks();
  providers = {};
  return 0;
}
