#include "faulty_kernels.hpp"

#include <map>
#include <vector>

#include "launch.cuh"
#include "reduce.cuh"

namespace espalier::cuda_emulation_tests {
namespace {

using kernels_fused::cuda::block_max;
using kernels_fused::cuda::block_sum;
using kernels_fused::cuda::launch;

constexpr int kThreads = 256;

// The line that the report must name stands beside the mistake.
std::map<Fault, int>& lines() {
  static std::map<Fault, int> value;
  return value;
}
#define MISTAKE(fault) lines()[fault] = __LINE__
#define MISTAKE_BELOW(fault) lines()[fault] = __LINE__ + 1

template <Fault kFault>
__global__ void faulty(float* out) {
  SMEM_ARRAY(float, slots, kThreads);
  const int t = static_cast<int>(threadIdx.x);
  float result = 0;
  if constexpr (kFault == Fault::none) {
    slots[t] = static_cast<float>(t);
    __syncthreads();
    result = slots[kThreads - 1 - t];
  } else if constexpr (kFault == Fault::removed_barrier) {
    slots[t] = 0.0f;
    __syncthreads();
    slots[t] = static_cast<float>(t);
    __syncwarp();
    MISTAKE(kFault), result = t % 2 == 0 ? slots[t] : slots[(t + 32) % kThreads];
  } else if constexpr (kFault == Fault::divergent_barrier) {
    if (t < 128) {
      MISTAKE(kFault), __syncthreads();
    } else {
      __syncthreads();
    }
  } else if constexpr (kFault == Fault::barrier_after_return) {
    if (t >= 128) return;
    MISTAKE(kFault), __syncthreads();
  } else if constexpr (kFault == Fault::short_mask) {
    // Odd lanes wait for even ones, which never come.
    if (t % 2 == 1) MISTAKE(kFault), result = __shfl_xor_sync(0xffffffffu, 1.0f, 2);
  } else if constexpr (kFault == Fault::lane_outside_mask) {
    if (t % 32 < 16) MISTAKE(kFault), result = __shfl_xor_sync(0x0000ffffu, 1.0f, 16);
  } else if constexpr (kFault == Fault::two_collectives) {
    if (t % 2 == 1) {
      result = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    } else {
      MISTAKE(kFault), result = __shfl_down_sync(0xffffffffu, 1.0f, 1);
    }
  } else if constexpr (kFault == Fault::overrun) {
    MISTAKE(kFault), slots[t + 1] = 1.0f;
  } else if constexpr (kFault == Fault::underrun) {
    MISTAKE(kFault), slots[t - 1] = 1.0f;
  } else if constexpr (kFault == Fault::unwritten_slot) {
    if (t < kThreads - 1) slots[t] = 1.0f;
    __syncthreads();
    MISTAKE(kFault), result = slots[t];
  } else if constexpr (kFault == Fault::read_and_write) {
    slots[t] = 1.0f;
    __syncthreads();
    result = slots[(t + 32) % kThreads];
    MISTAKE(kFault), slots[t] = result + 1.0f;
  } else if constexpr (kFault == Fault::warp_race) {
    // Neighbours of one warp, without __syncwarp between them.
    slots[t] = 0.0f;
    __syncwarp();
    slots[t] = static_cast<float>(t);
    MISTAKE(kFault), result = slots[t ^ 1];
  } else if constexpr (kFault == Fault::unwritten_dynamic) {
    SMEM_DYN(float, row);
    MISTAKE(kFault), result = row[t % 64];
  } else if constexpr (kFault == Fault::dynamic_overrun) {
    SMEM_DYN(float, row);
    MISTAKE(kFault), row[t] = 1.0f;
  } else if constexpr (kFault == Fault::misaligned_vector) {
    MISTAKE(kFault), result = ALIGNED_ACCESS(float4, out + t / 128).x;
  } else if constexpr (kFault == Fault::too_much_static) {
    MISTAKE_BELOW(kFault);
    SMEM_ARRAY(float, more, 12 << 10);  // with `slots` above 48 KiB
    more[t] = 1.0f;
  }
  out[t] = result;
}

__global__ void empty(int*) {}

__global__ void collectives(int* wrong) {
  SMEM_ARRAY(float, slots, 32);
  const int t = static_cast<int>(threadIdx.x), lane = t % 32, warp = t / 32;
  const auto expect = [&](bool right) {
    if (!right) ++wrong[t];
  };
  const unsigned all = 0xffffffffu;
  expect(__shfl_sync(all, t, 5) == warp * 32 + 5);
  expect(__shfl_sync(all, t, 3, 8) == warp * 32 + lane / 8 * 8 + 3);
  expect(__shfl_xor_sync(all, t, 9) == (t ^ 9));
  expect(__shfl_up_sync(all, t, 3) == (lane < 3 ? t : t - 3));
  expect(__shfl_up_sync(all, t, 3, 8) == (lane % 8 < 3 ? t : t - 3));
  expect(__shfl_down_sync(all, t, 7) == (lane + 7 > 31 ? t : t + 7));
  expect(__shfl_down_sync(all, 0.5 * t, 7, 16) == 0.5 * (lane % 16 + 7 > 15 ? t : t + 7));
  expect(__ballot_sync(all, lane % 3 == 0) == 0x49249249u);
  expect(__any_sync(all, lane == 31 && warp == 2) == (warp == 2 ? 1 : 0));
  expect(__all_sync(all, warp == 1 || lane != 4) == (warp == 1 ? 1 : 0));
  if (lane < 16) expect(__shfl_xor_sync(0x0000ffffu, t, 1) == (t ^ 1));  // half a warp by itself
  expect(__syncthreads_count(t % 4 == 0) == kThreads / 4);
  expect(__syncthreads_or(t == 77) == 1);
  expect(__syncthreads_and(t != 77) == 0);
  expect(block_sum<kThreads>(static_cast<float>(t), slots) == kThreads * (kThreads - 1) / 2);
  expect(block_max<kThreads>(static_cast<float>(t == 100 ? 1000 : t), slots) == 1000.0f);
  expect(block_max<kThreads>(static_cast<float>(-1 - t), slots) == -1.0f);
  const float broken = block_max<kThreads>(t == 65 ? NAN : 1.0f, slots);
  expect(broken != broken);
}

template <Fault kFault>
void start(float* out) {
  launch("faulty", faulty<kFault>, dim3(1), dim3(kThreads), 64 * sizeof(float), nullptr, out);
}

}  // namespace

void launch_faulty(Fault fault, float* out) {
  switch (fault) {
    case Fault::none:
      return start<Fault::none>(out);
    case Fault::removed_barrier:
      return start<Fault::removed_barrier>(out);
    case Fault::divergent_barrier:
      return start<Fault::divergent_barrier>(out);
    case Fault::barrier_after_return:
      return start<Fault::barrier_after_return>(out);
    case Fault::short_mask:
      return start<Fault::short_mask>(out);
    case Fault::lane_outside_mask:
      return start<Fault::lane_outside_mask>(out);
    case Fault::two_collectives:
      return start<Fault::two_collectives>(out);
    case Fault::overrun:
      return start<Fault::overrun>(out);
    case Fault::underrun:
      return start<Fault::underrun>(out);
    case Fault::unwritten_slot:
      return start<Fault::unwritten_slot>(out);
    case Fault::read_and_write:
      return start<Fault::read_and_write>(out);
    case Fault::warp_race:
      return start<Fault::warp_race>(out);
    case Fault::unwritten_dynamic:
      return start<Fault::unwritten_dynamic>(out);
    case Fault::dynamic_overrun:
      return start<Fault::dynamic_overrun>(out);
    case Fault::misaligned_vector:
      return start<Fault::misaligned_vector>(out);
    case Fault::too_much_static:
      return start<Fault::too_much_static>(out);
  }
}

void launch_empty(unsigned grid_y, unsigned threads, unsigned threads_z, unsigned long dynamic_shared_bytes) {
  launch("empty", empty, dim3(1, grid_y), dim3(threads, 1, threads_z), dynamic_shared_bytes, nullptr, nullptr);
}

int line_of(Fault fault) { return lines()[fault]; }

int count_collective_mismatches() {
  std::vector<int> wrong(kThreads);
  launch("collectives", collectives, dim3(1), dim3(kThreads), 0, nullptr, wrong.data());
  int sum = 0;
  for (const int count : wrong) sum += count;
  return sum;
}

}  // namespace espalier::cuda_emulation_tests
