#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "espalier/threads.hpp"
#include "interop/huggingface_config.hpp"
#include "interop/weights.hpp"
#include "model/parameters.hpp"

namespace espalier::app {

/// What is to be written, and how.
struct HuggingFaceExport {
  std::filesystem::path folder;  ///< must not exist, or be empty
  DType dtype = DType::f32;      ///< f32, bf16 or f16
  std::int64_t vocab = 0;        ///< rows of embedding and head; at most the source's
  std::int64_t shard_bytes = 0;  ///< largest file, but for a tensor that is larger by itself
  SpecialIds ids;
  std::string config;                             ///< config.json the model came with, or ""
  std::vector<std::filesystem::path> companions;  ///< files copied along: the tokenizer's
  std::map<std::string, std::string> made;        ///< further files: name and content
};

struct WrittenModel {
  std::int64_t files = 0;  ///< of weights
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;  ///< of tensors
};

/// Bytes of tensors the export will have.
std::int64_t export_bytes(const ParameterList& parameters, const HuggingFaceExport& what);

/// Writes config.json and model.safetensors, or shards with their index, tensor by tensor: memory stays that of a
/// block, for GPT-2's transposed weights that of one tensor. The folder appears by one rename.
/// @param advanced  called with the bytes written since the last call; may throw to stop.
/// @throws IoError for a value that the type cannot hold, a damaged source, a folder that exists.
WrittenModel write_huggingface(const WeightSource& source, const ParameterList& parameters,
                               const HuggingFaceExport& what, FunctionRef<void(std::int64_t)> advanced);

}  // namespace espalier::app
