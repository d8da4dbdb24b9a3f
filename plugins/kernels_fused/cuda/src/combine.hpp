#pragma once

#include <cstdint>

#include "espalier/communicator.hpp"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {

/// The pieces of a reduction on one rank: its own, and those of the other ranks, in rank order without it, one after
/// another.
struct Pieces {
  const void* own = nullptr;
  const void* others = nullptr;
  std::int64_t elements = 0;  ///< of a piece
  int rank = 0;
  int size = 1;
};

/// dst = the pieces joined in rank order: sums in FP32 (FP64 for f64, own arithmetic for integers), rounded once; max
/// keeps NaN. The same bits as core's communicator of host memory gives. dst may be the own piece.
void combine(const Pieces& pieces, Reduce how, DType dtype, void* dst, cudaStream_t stream);

}  // namespace espalier::kernels_fused::cuda
