#pragma once

#include <string_view>

#include "simd/table.hpp"

namespace espalier::kernels_fused {

/// What kernels may use, each including the ones before.
enum class InstructionSet { avx2, avx512, avx512_bf16, amx };

/// "AVX2", "AVX-512", "AVX-512 BF16", "AMX": for the log.
std::string_view title(InstructionSet set);

/// The best set this machine and its operating system offer.
/// @throws DeviceError when even AVX2, FMA, F16C or BMI2 is missing: the message names the reference backend.
InstructionSet detect_instruction_set();

/// @param asked  "auto", or the set to use: "avx2", "avx512", "avx512_bf16", "amx".
/// @throws DeviceError when the machine lacks it.
InstructionSet choose_instruction_set(std::string_view asked);

/// The kernels compiled for the set.
const SimdTable& simd_table(InstructionSet set);

}  // namespace espalier::kernels_fused
