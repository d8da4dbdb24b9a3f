#pragma once

#include <cstdint>
#include <optional>

#include "espalier/config.hpp"
#include "espalier/dtype.hpp"

namespace espalier::parallel_zero {

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

inline constexpr OptionSpec kOptions[] = {
    {"stage", OptionType::integer, "1", "what is sharded: 0 nothing, 1 optimizer state, 2 gradients too, 3 weights too",
     0, 3},
    {"reduce", OptionType::string, "\"micro_batch\"",
     "when stage 2 reduces gradients: after every micro-batch into shards, or once a step from whole ones", -kNoLimit,
     kNoLimit, "micro_batch|step"},
    {"reduce_dtype", OptionType::string, "\"auto\"",
     "dtype of gradients on the wire; sums are FP32 in any case; auto: what the optimizer asks for", -kNoLimit,
     kNoLimit, "auto|f32|bf16"},
    {"bucket_bytes", OptionType::integer, "67108864",
     "scratch for gradients on the wire in another dtype than f32, bytes", 4096, 1099511627776.0},
    {"overlap", OptionType::boolean, "true",
     "sums travel while backward goes on, weights while the next forward does; costs memory at stages 2 and 3"},
    {"prefetch", OptionType::integer, "1", "stage 3: layers gathered ahead of their use", 0, 64},
    {"keep_gathered", OptionType::integer, "1",
     "stage 3: further layers that may stay gathered between uses; 0: each use gathers", 0, 1e6},
    {"offload_optimizer", OptionType::string, "\"none\"",
     "where optimizer state lives: with the weights, or in host memory that the device's update kernels reach",
     -kNoLimit, kNoLimit, "none|cpu"},
};

inline constexpr std::int64_t kDefaultBucketBytes = std::int64_t{64} << 20;

struct Options {
  int stage = 1;
  bool reduce_once = false;           ///< stage 2 with reduce = "step"
  std::optional<DType> reduce_dtype;  ///< none: the optimizer's
  std::int64_t bucket_bytes = kDefaultBucketBytes;
  bool overlap = true;
  int prefetch = 1;
  int keep_gathered = 1;
  bool offload = false;  ///< optimizer state in host memory
};

/// @throws ConfigError for options that exclude each other or are not there yet.
Options read_options(const ConfigView& config);

}  // namespace espalier::parallel_zero
