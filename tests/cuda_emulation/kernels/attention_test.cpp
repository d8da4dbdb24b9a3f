// Attention over lengths, placements and schedules, against the reference provider; how it is cut and what memory it
// asks for.
#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/schedules.hpp"

namespace espalier::testing {
namespace {

using kernels_fused::cuda::CudaAttention;

class AttentionSchedules : public ScheduleTest {
 protected:
  struct Problem {
    std::int64_t batch = 1, queries = 1, first_query = 0, keys = 1;
    bool dropout = false;
    bool ragged = false;
    Placement placement = {};
  };
  static constexpr std::int64_t kHeads = 2;
  static constexpr std::int64_t kWidth = 6;

  /// Rows of positions, heads side by side.
  static AttentionOperand by_heads(const Operand& operand, std::int64_t positions) {
    const View& view = operand.view();
    return {view.data, positions * view.row_stride, view.row_stride, kWidth};
  }

  /// Forward and backward.
  static std::vector<double> attend(Backend& backend, const Problem& p) {
    const auto make = [&](std::int64_t positions) {
      return Operand(backend, dtype(), p.batch * positions, kHeads * kWidth, p.placement);
    };
    Operand q = make(p.queries), k = make(p.keys), v = make(p.keys), out = make(p.queries), grad_out = make(p.queries);
    Operand grad_q = make(p.queries), grad_k = make(p.keys), grad_v = make(p.keys);
    Operand slopes(backend, DType::f32, 1, kHeads);
    Operand lengths =
        i32(backend, std::vector<double>(static_cast<std::size_t>(p.batch), static_cast<double>((2 * p.keys + 2) / 3)));
    std::uint32_t seed = 0;
    for (Operand* operand : {&q, &k, &v, &grad_out}) operand->random(++seed);
    slopes.set(std::vector<double>{0.25, 0.0625});
    Attention args;
    args.q = by_heads(q, p.queries);
    args.k = by_heads(k, p.keys);
    args.v = by_heads(v, p.keys);
    args.out = by_heads(out, p.queries);
    args.dtype = dtype();
    args.batch = p.batch;
    args.heads = kHeads;
    args.head_dim = kWidth;
    args.queries = p.queries;
    args.first_query = p.first_query;
    args.keys = p.keys;
    args.scale = 0.4f;
    args.slopes = slopes.view().as<float>();
    if (p.ragged) args.key_lengths = lengths.view().as<std::int32_t>();
    if (p.dropout) args.dropout = {.p = 0.25f, .key = make_key(7, RandomUse::dropout, 3), .first_sample = 5};
    AttentionKernels& kernels = *backend.kernels().attention;
    Operand saved(backend, DType::u8, 1, static_cast<std::int64_t>(kernels.saved_bytes(args)));
    args.saved = saved;
    kernels.forward(args, stream(backend));
    kernels.backward({args, by_heads(grad_out, p.queries), by_heads(grad_q, p.queries), by_heads(grad_k, p.keys),
                      by_heads(grad_v, p.keys)},
                     stream(backend));
    std::vector<double> results = out.read();
    for (Operand* operand : {&grad_q, &grad_k, &grad_v}) append(results, *operand);
    return results;
  }

  void check(const Problem& problem) {
    expect_reference([&](Backend& backend) { return attend(backend, problem); }, Agreement::near_one);
  }
};

TEST_P(AttentionSchedules, OneWarpARow) {
  for_shapes([&](std::int64_t, std::int64_t keys, Placement placement) {
    const std::int64_t queries = std::min<std::int64_t>(keys, keys > 129 ? 3 : 9);
    check({.queries = queries, .first_query = keys - queries, .keys = keys, .placement = placement});
  });
}

TEST_P(AttentionSchedules, WholeTriangles) {
  for (const std::int64_t n : {1, 3, 63, 65}) check({.batch = 2, .queries = n, .keys = n, .placement = {1, 3}});
}

TEST_P(AttentionSchedules, DropoutAndRaggedBatches) {
  check({.batch = 2, .queries = 33, .keys = 33, .dropout = true});
  check({.batch = 2, .queries = 33, .keys = 33, .ragged = true});
  check({.batch = 2, .queries = 5, .first_query = 20, .keys = 40, .dropout = true, .ragged = true});
}

TEST_P(AttentionSchedules, OneBlockARow) {
  if (!GetParam().whole) return;
  for (const std::int64_t keys : {4096, 4097, 5003}) {
    check({.queries = 2, .first_query = keys - 2, .keys = keys, .dropout = keys == 5003});
  }
}

TEST_P(AttentionSchedules, BlocksOfQueriesAndGroupsOfHeadsAddUpAlike) {
  cuda_emulation::options() = {};
  const Problem problem{.batch = 2, .queries = 40, .keys = 40, .dropout = true, .ragged = true};
  EmulatedBackend whole;
  const std::vector<double> want = attend(whole, problem);
  const double tolerance = dtype() == DType::f32 ? 2e-6 : dtype() == DType::bf16 ? 8e-3 : 1e-3;
  for (const CudaAttention::Limits limits : {CudaAttention::Limits{16, 1 << 20}, {7, 1 << 20}, {64, 100}, {1, 1}}) {
    EmulatedBackend cut(limits);
    const std::vector<double> got = attend(cut, problem);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << limits.query_block << " " << i;
    }
  }
}

TEST_P(AttentionSchedules, WhatScratchHeldBeforeDoesNotShow) {
  cuda_emulation::options() = {};
  const Problem behind{.batch = 2, .queries = 5, .first_query = 20, .keys = 40};  // keys that no query sees
  EmulatedBackend fresh, used({16, 1 << 20});
  attend(used, {.batch = 2, .queries = 40, .keys = 40});
  EXPECT_EQ(attend(used, behind), attend(fresh, behind));
}

TEST_P(AttentionSchedules, NoMoreMemoryThanAnnounced) {
  cuda_emulation::options() = {};
  constexpr std::size_t kSmallestBlock = std::size_t{1} << 20;  // scratch grows to powers of two from here
  for (const std::int64_t batch : {1, 3}) {
    for (const std::int64_t keys : {300, 320}) {
      EmulatedBackend backend;
      attend(backend, {.batch = batch, .queries = 300, .keys = keys});
      Attention shape;
      shape.dtype = dtype();
      shape.batch = batch;
      shape.heads = kHeads;
      shape.head_dim = kWidth;
      shape.queries = 300;
      shape.keys = keys;
      const std::size_t announced = backend.kernels().attention->workspace(shape);
      ASSERT_GT(announced, kSmallestBlock);
      std::size_t peak = 0;
      for (const MemoryUse& use : backend.device().memory_use()) {
        if (use.purpose == "workspace") peak = use.peak;
      }
      EXPECT_GE(peak, kSmallestBlock);
      EXPECT_LE(peak, std::bit_ceil(announced)) << "batch " << batch << ", keys " << keys;
    }
  }
}

}  // namespace

INSTANTIATE_SCHEDULES(AttentionSchedules);

}  // namespace espalier::testing
