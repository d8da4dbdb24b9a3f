#include "kernels.hpp"

namespace espalier::kernels_fused {
namespace {

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

void check(const Attention& args) {
  ESPALIER_ASSERT(args.first_query >= 0 && args.keys >= args.first_query + args.queries);
}

}  // namespace

Reason FusedAttention::supports(const Attention& shape) const {
  if (!is_float(shape.dtype)) return "kernels_fused: no attention in " + std::string(name_of(shape.dtype));
  return {};
}

std::size_t FusedAttention::saved_bytes(const Attention& shape) const {
  return static_cast<std::size_t>(shape.batch * shape.heads * shape.queries) * 2 * sizeof(float);
}

std::size_t FusedAttention::workspace(const Attention& shape) const {
  return static_cast<std::size_t>(lanes_.size()) * ops_.scratch_floats(shape, true) * sizeof(float);
}

void FusedAttention::forward(const Attention& args, Stream&) {
  check(args);
  if (args.queries == 0) return;
  ESPALIER_ASSERT(args.saved.empty() || args.saved.bytes() >= saved_bytes(args));
  lanes_.reserve(ops_.scratch_floats(args, false) * sizeof(float));
  lanes_.pool().run(args.batch * args.heads, [&](std::int64_t item) {
    const Lanes::Hold lane(lanes_);
    ops_.forward(args, item / args.heads, item % args.heads, lane.floats());
  });
}

void FusedAttention::backward(const AttentionGradient& args, Stream&) {
  const Attention& shape = args.forward;
  check(shape);
  if (shape.queries == 0) return;
  ESPALIER_ASSERT(shape.saved.bytes() >= saved_bytes(shape));
  lanes_.reserve(ops_.scratch_floats(shape, true) * sizeof(float));
  lanes_.pool().run(shape.batch * shape.heads, [&](std::int64_t item) {
    const Lanes::Hold lane(lanes_);
    ops_.backward(args, item / shape.heads, item % shape.heads, lane.floats());
  });
}

}  // namespace espalier::kernels_fused
