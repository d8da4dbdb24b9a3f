#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/facts.hpp"
#include "espalier/parallel/data.hpp"
#include "interop/safetensors.hpp"
#include "model/parameters.hpp"

namespace espalier::app {

/// A folder as Hugging Face transformers writes a BLOOM model: config.json and model.safetensors, or shards with
/// model.safetensors.index.json; FP32, BF16 or FP16, names with or without "transformer.". Files are mapped and read as
/// needed.
class HuggingFaceFolder {
 public:
  /// Reads config and headers. @throws IoError naming file and key: not BLOOM, a variant we do not compute, a damaged
  /// file.
  explicit HuggingFaceFolder(const std::filesystem::path& folder);

  /// The model's shape: vocab and tokenizer_vocab are config's vocab_size, dropout is config's, seq_length its
  /// seq_length or 0.
  const ModelShape& shape() const { return shape_; }
  /// The tensor of a parameter, by its name without "transformer.".
  /// @throws IoError when it is missing.
  const FileTensor& at(std::string_view parameter) const;
  /// Checks that every parameter is there with its shape, and nothing else.
  /// @throws IoError naming the first that is wrong, both shapes given.
  void check(const ParameterList& parameters) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  const FileTensor* find(std::string_view parameter) const;
  void read_config();
  void open_files();
  void open_shards(const std::filesystem::path& index);

  std::filesystem::path folder_;
  ModelShape shape_;
  std::vector<SafetensorsFile> files_;
};

/// Fills every "master" piece from the folder, each rank its own, converted to FP32 in blocks of bounded size; padding
/// gets 0. Ends with data.refresh(): collective over the data group. @throws IoError as HuggingFaceFolder::check.
void load_weights(const HuggingFaceFolder& folder, const ParameterList& list,
                  std::span<const LocalParameter> parameters, DataParallel& data, Backend& backend);

}  // namespace espalier::app
