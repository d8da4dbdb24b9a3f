#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/facts.hpp"
#include "espalier/parallel/data.hpp"
#include "interop/huggingface_config.hpp"
#include "interop/safetensors.hpp"
#include "interop/weights.hpp"
#include "model/parameters.hpp"

namespace espalier::app {

/// A folder as Hugging Face transformers writes a BLOOM or GPT-2 model: config.json and model.safetensors, or shards
/// with model.safetensors.index.json; FP32, BF16 or FP16, names with or without "transformer.". Files are mapped and
/// read as needed; nothing in them is executed, so pickled weights (.bin) are refused.
class HuggingFaceFolder final : public WeightSource {
 public:
  /// Reads config and headers. @throws IoError naming file and key: another model, a variant we do not compute, a
  /// damaged file, a tensor that is there twice.
  explicit HuggingFaceFolder(const std::filesystem::path& folder);

  /// The model's shape: vocab and tokenizer_vocab are config's vocab_size, dropout is config's, seq_length its
  /// seq_length or 0.
  const ModelShape& shape() const override { return config_.shape; }
  const HuggingFaceConfig& config() const { return config_; }
  const std::filesystem::path& folder() const override { return folder_; }

  /// The tensor of a parameter as it lies in the file.
  /// @throws IoError when it is missing.
  const FileTensor& at(const Parameter& parameter) const;
  DType dtype_of(const Parameter& parameter) const override { return *at(parameter).dtype; }
  std::int64_t rows_of(const Parameter& parameter) const override;
  std::unique_ptr<WeightReader> open(const Parameter& parameter) const override;

  /// Checks that every parameter is there with its shape, and nothing else; a head stored beside an embedding that it
  /// is tied to must be equal to it.
  /// @throws IoError naming the first that is wrong, both shapes given.
  void check(const ParameterList& parameters) const;
  /// The same for a model that may have more rows in its vocabulary than the files: the embedding and the head need
  /// only the first `vocab` of them.
  void check(const ParameterList& parameters, std::int64_t vocab) const;
  /// Both for the model of a recipe: its shape, ids of its tokenizer, its parameters.
  void require_model(const ModelShape& model, const ParameterList& parameters) const;

 private:
  const FileTensor* find(std::string_view name) const;
  void open_files();
  void open_shards(const std::filesystem::path& index);
  void collect();
  void check_tied_head() const;

  std::filesystem::path folder_;
  HuggingFaceConfig config_;
  std::vector<SafetensorsFile> files_;
  struct Entry {
    const FileTensor* tensor = nullptr;
    const SafetensorsFile* file = nullptr;
  };
  std::map<std::string, Entry, std::less<>> tensors_;  ///< by name without "transformer."
};

/// Whether a folder is meant to be a Hugging Face model: it has a config.json.
bool is_huggingface_folder(const std::filesystem::path& folder);

/// What of a model's shape must be as in the files although no tensor's shape shows it, or "": "heads 4, not 8".
std::string model_mismatch(const ModelShape& model, const ModelShape& files);

/// Fills every "master" piece from the source, each rank its own, converted to FP32 in blocks of bounded size; padding,
/// and rows of the vocabulary that the source does not have, get 0. Ends with data.refresh(): collective over the data
/// group. The source has been checked against the model.
void load_weights(const WeightSource& source, std::span<const LocalParameter> parameters, DataParallel& data,
                  Backend& backend);

}  // namespace espalier::app
