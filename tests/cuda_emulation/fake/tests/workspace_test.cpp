// What the families announce is what they use: with that much reserved, nothing grows.
#include <functional>

#include "espalier/testing/kernel_case.hpp"
#include "fused_cuda_backend.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

using testing::Operand;

class Workspace : public ::testing::Test {
 protected:
  /// @param call  needs `bytes` of scratch, and no less than most of it.
  void expect_enough(const std::string& what, std::size_t bytes, const std::function<void()>& call) {
    // More than any backend reserves, so that what is announced here decides.
    ASSERT_GT(bytes, std::size_t{64} << 10) << what;
    backend_.prepare({bytes, {}, nullptr});
    const std::size_t before = used();
    call();
    EXPECT_EQ(used(), before) << what;
    backend_.device().wait(stream_);
  }
  std::size_t used() {
    std::size_t bytes = 0;
    for (const MemoryUse& use : backend_.device().memory_use()) bytes += use.purpose == "workspace" ? use.peak : 0;
    return bytes;
  }
  Operand bf16(std::int64_t rows, std::int64_t cols) { return Operand(backend_, DType::bf16, rows, cols); }
  Operand f32(std::int64_t rows, std::int64_t cols) { return Operand(backend_, DType::f32, rows, cols); }

  FusedCudaBackend backend_{Settings{}};
  Stream& stream_ = backend_.device().lane(Lane::compute);
  const KernelSet& kernels_ = backend_.kernels();
};

TEST_F(Workspace, QuestionsReserveNothing) {
  const std::size_t before = used();
  Attention attention;
  attention.dtype = DType::bf16;
  attention.batch = attention.heads = 2;
  attention.head_dim = 64;
  attention.queries = attention.keys = 512;
  EXPECT_GT(kernels_.attention->workspace(attention), 0u);
  EXPECT_GT(kernels_.norm->workspace(4096, 1024), 0u);
  EXPECT_GT(kernels_.elementwise->embedding_workspace(4096, 1024), 0u);
  EXPECT_GT(kernels_.matrix->sum_workspace(4096, 1024), 0u);
  EXPECT_EQ(used(), before);
}

TEST_F(Workspace, NormBackward) {
  const std::int64_t rows = 300, hidden = 8192;
  Operand src = bf16(rows, hidden), weight = bf16(1, hidden), grad = bf16(rows, hidden), out = bf16(rows, hidden);
  Operand mean = f32(1, rows), rstd = f32(1, rows), grad_weight = f32(1, hidden), grad_bias = f32(1, hidden);
  expect_enough("layer norm", kernels_.norm->workspace(rows, hidden), [&] {
    kernels_.norm->backward({grad, src, weight, mean, rstd, out, {}, grad_weight, grad_bias, false}, stream_);
  });
}

TEST_F(Workspace, ColumnSums) {
  Operand src = bf16(260, 8192), dst = f32(1, 8192);
  expect_enough("column sum", kernels_.matrix->sum_workspace(260, 8192),
                [&] { kernels_.matrix->column_sum(src, dst, true, stream_); });
}

TEST_F(Workspace, EmbeddingBackward) {
  const std::int64_t tokens = 5000, table = 300;
  Operand ids(backend_, DType::i32, 1, tokens), grad = bf16(tokens, 2), sums = f32(table, 2);
  expect_enough("embedding", kernels_.elementwise->embedding_workspace(tokens, table),
                [&] { kernels_.elementwise->embedding_backward(ids, grad, 0, sums, stream_); });
}

TEST_F(Workspace, AttentionBothWays) {
  const std::int64_t seq = 128, heads = 4, d = 8, h = heads * d;
  Operand qkv = bf16(seq, 3 * h), out = bf16(seq, h), grad_out = bf16(seq, h), grads = bf16(seq, 3 * h);
  const auto part = [&](Operand& operand, std::int64_t index) {
    return AttentionOperand{operand.view().at(0, index * d), seq * 3 * h, 3 * h, 3 * d};
  };
  const auto whole = [&](Operand& operand) { return AttentionOperand{operand.view().data, seq * h, h, d}; };
  Attention args;
  args.q = part(qkv, 0);
  args.k = part(qkv, 1);
  args.v = part(qkv, 2);
  args.out = whole(out);
  args.dtype = DType::bf16;
  args.batch = 1;
  args.heads = heads;
  args.head_dim = d;
  args.queries = args.keys = seq;
  Operand saved(backend_, DType::u8, 1, static_cast<std::int64_t>(kernels_.attention->saved_bytes(args)));
  args.saved = saved;
  expect_enough("attention", kernels_.attention->workspace(args), [&] {
    kernels_.attention->forward(args, stream_);
    kernels_.attention->backward({args, whole(grad_out), part(grads, 0), part(grads, 1), part(grads, 2)}, stream_);
  });
}

}  // namespace
}  // namespace espalier::kernels_fused::cuda
