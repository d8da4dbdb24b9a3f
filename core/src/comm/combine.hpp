#pragma once

#include <cstdint>
#include <span>

#include "espalier/communicator.hpp"

namespace espalier::comm {

/// dst[i] = pieces[0][i] ∘ pieces[1][i] ∘ …, in that order. Sums run in FP32 (FP64 for f64, integers in their own type)
/// and are rounded once; the maximum of anything with NaN is NaN. dst may be one of the pieces.
void combine(Reduce how, DType dtype, std::span<const void* const> pieces, void* dst, std::int64_t elements);

}  // namespace espalier::comm
