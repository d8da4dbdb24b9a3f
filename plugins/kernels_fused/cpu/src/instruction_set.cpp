#include "instruction_set.hpp"

#include <cpuid.h>

#include <array>
#include <string>

#include "espalier/error.hpp"

namespace espalier::kernels_fused {
namespace {

struct Name {
  InstructionSet set;
  std::string_view option, title;
};
constexpr std::array<Name, 4> kNames = {{{InstructionSet::avx2, "avx2", "AVX2"},
                                         {InstructionSet::avx512, "avx512", "AVX-512"},
                                         {InstructionSet::avx512_bf16, "avx512_bf16", "AVX-512 BF16"},
                                         {InstructionSet::amx, "amx", "AMX"}}};

struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Leaf cpuid(unsigned leaf, unsigned sub) {
  Leaf out;
  __get_cpuid_count(leaf, sub, &out.a, &out.b, &out.c, &out.d);
  return out;
}

// __builtin_cpu_supports of GCC 12 knows neither F16C nor AMX, so these come from CPUID itself.
bool has_f16c() { return (cpuid(1, 0).c >> 29 & 1u) != 0; }
bool has_amx_bf16() {
  const unsigned features = cpuid(7, 0).d;
  return (features >> 22 & 1u) != 0 && (features >> 24 & 1u) != 0;  // AMX-BF16, AMX-TILE
}

}  // namespace

std::string_view title(InstructionSet set) { return kNames[static_cast<std::size_t>(set)].title; }

InstructionSet detect_instruction_set() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2") ||
      !has_f16c()) {
    throw DeviceError(
        "kernels_fused: this machine lacks AVX2, FMA, F16C or BMI2, which the fused kernels need; set backend.plugin = "
        "\"reference\"");
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return InstructionSet::avx2;
  }
  if (!__builtin_cpu_supports("avx512bf16")) return InstructionSet::avx512;
  return has_amx_bf16() ? InstructionSet::amx : InstructionSet::avx512_bf16;
}

InstructionSet choose_instruction_set(std::string_view asked) {
  const InstructionSet best = detect_instruction_set();
  if (asked == "auto") return best;
  for (const Name& name : kNames) {
    if (name.option != asked) continue;
    if (name.set <= best) return name.set;
    throw DeviceError("kernels_fused: instruction_set = \"" + std::string(asked) + "\", but this machine offers " +
                      std::string(title(best)) + " at most; set instruction_set = \"auto\"");
  }
  throw DeviceError("kernels_fused: instruction_set = \"" + std::string(asked) +
                    "\" is not known; use auto, avx2, avx512, avx512_bf16 or amx");
}

const SimdTable& simd_table(InstructionSet set) {
  static const SimdTable narrow = {avx2::kConvertOps, avx2::kNormOps,   avx2::kElementwiseOps,
                                   avx2::kLossOps,    avx2::kUpdateOps, avx2::kAttentionOps};
  static const SimdTable wide = {avx512::kConvertOps, avx512::kNormOps,   avx512::kElementwiseOps,
                                 avx512::kLossOps,    avx512::kUpdateOps, avx512::kAttentionOps};
  return set == InstructionSet::avx2 ? narrow : wide;
}

}  // namespace espalier::kernels_fused
