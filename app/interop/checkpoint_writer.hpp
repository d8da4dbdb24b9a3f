#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/threads.hpp"
#include "interop/huggingface_writer.hpp"
#include "interop/weights.hpp"
#include "model/parameters.hpp"

namespace espalier::app {

/// What Manifest::provider of such a checkpoint begins with.
inline constexpr std::string_view kConvertedFrom = "converted from ";

/// A checkpoint without optimizer state, made of weights from elsewhere.
struct CheckpointImport {
  std::filesystem::path folder;                   ///< of checkpoints: gets step_0 and latest; must not hold any yet
  ModelShape shape;                               ///< vocab at least the source's: rows beyond get 0
  std::string recipe;                             ///< TOML, saved with it
  std::string tokenizer;                          ///< fingerprint, "" when unknown
  std::string origin;                             ///< for people: where the weights came from
  std::string config;                             ///< config.json the weights came with, kept for the way back
  std::vector<std::filesystem::path> companions;  ///< files copied along: the tokenizer's
};

/// Writes master weights in FP32, tensor by tensor, and publishes them as any checkpoint is. `advanced` as in
/// write_huggingface.
/// @param parameters  of what.shape.
WrittenModel write_checkpoint(const WeightSource& source, const ParameterList& parameters, const CheckpointImport& what,
                              FunctionRef<void(std::int64_t)> advanced);

}  // namespace espalier::app
