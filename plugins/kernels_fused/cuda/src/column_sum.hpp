#pragma once

#include "scratch.hpp"

namespace espalier::kernels_fused::cuda {

/// dst[c] (+)= Σ_r src[r, c]: sums of blocks of rows, then these in ascending order; FP32. src working, not empty; dst
/// f32.
void sum_columns(const View& src, const View& dst, bool accumulate, Scratch& scratch, Stream& stream);

/// Scratch bytes of it.
std::size_t sum_workspace(std::int64_t rows, std::int64_t columns);

/// dst = src, or dst += src where `adds`; f32 vectors, not empty.
void add_vector(const View& src, const View& dst, bool adds, Stream& stream);

/// dst = src in dst's type; vectors of f32, bf16 or f16, not empty.
void convert(const View& src, const View& dst, Stream& stream);

}  // namespace espalier::kernels_fused::cuda
