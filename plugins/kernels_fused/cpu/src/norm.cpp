#include "kernels.hpp"

namespace espalier::kernels_fused {
namespace {

constexpr std::int64_t kRows = 32;      // rows of one part of the column sums
constexpr std::int64_t kColumns = 512;  // columns of one item of their combination

std::int64_t blocks(std::int64_t n, std::int64_t block) { return (n + block - 1) / block; }

}  // namespace

Reason FusedNorm::supports(DType working, std::int64_t) const {
  if (working == DType::f32 || working == DType::bf16 || working == DType::f16) return {};
  return "kernels_fused: no layer norm in " + std::string(name_of(working));
}

std::size_t FusedNorm::workspace(std::int64_t tokens, std::int64_t hidden) const {
  return static_cast<std::size_t>(blocks(tokens, kRows) * 2 * hidden) * sizeof(float);
}

void FusedNorm::forward(const LayerNorm& args, Stream&) {
  run_rows(lanes_.pool(), args.src.rows, args.src.cols,
           [&](std::int64_t begin, std::int64_t end) { ops_.forward(args, begin, end); });
}

void FusedNorm::backward(const LayerNormGradient& args, Stream&) {
  const std::int64_t rows = args.src.rows, hidden = args.src.cols, parts = blocks(rows, kRows);
  if (hidden == 0) return;
  const auto floats = static_cast<std::size_t>(parts * 2 * hidden);
  if (partial_.size() < floats) partial_.resize(floats);
  float* const partial = partial_.data();
  lanes_.pool().run(parts, [&](std::int64_t part) {
    const std::int64_t begin = part * kRows;
    ops_.backward(args, begin, begin + kRows < rows ? begin + kRows : rows, partial + part * 2 * hidden);
  });
  lanes_.pool().run(blocks(hidden, kColumns), [&](std::int64_t item) {
    const std::int64_t begin = item * kColumns, end = begin + kColumns < hidden ? begin + kColumns : hidden;
    ops_.combine(partial, parts, 2 * hidden, begin, end, args.accumulate, args.grad_weight.as<float>());
    ops_.combine(partial + hidden, parts, 2 * hidden, begin, end, args.accumulate, args.grad_bias.as<float>());
  });
}

}  // namespace espalier::kernels_fused
