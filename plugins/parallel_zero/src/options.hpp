#pragma once

#include <cstdint>
#include <optional>

#include "espalier/config.hpp"
#include "espalier/dtype.hpp"

namespace espalier::parallel_zero {

inline constexpr OptionSpec kOptions[] = {
    {"stage", OptionType::integer, "1", "what is sharded: 0 nothing, 1 optimizer state", 0, 3},
    {"reduce_dtype", OptionType::string, "\"auto\"",
     "dtype of gradients on the wire; sums are FP32 in any case; auto: what the optimizer asks for",
     -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), "auto|f32|bf16"},
    {"bucket_bytes", OptionType::integer, "67108864",
     "scratch for gradients on the wire in another dtype than f32, bytes", 4096, 1099511627776.0},
};

struct Options {
  int stage = 1;
  std::optional<DType> reduce_dtype;  ///< none: the optimizer's
  std::int64_t bucket_bytes = std::int64_t{64} << 20;
};

/// @throws ConfigError for a stage that is not there yet.
Options read_options(const ConfigView& config);

}  // namespace espalier::parallel_zero
