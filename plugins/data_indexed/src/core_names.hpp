#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache.hpp"

namespace espalier::data_indexed {

/// What Megatron-LM core calls its cached index arrays: the MD5 of a description, which is JSON as Python writes it
/// with an indent of 4. A hit there means that all files are present; nothing inside is compared.

/// Of one dataset's split.
struct CoreDataset {
  std::string path;        ///< as core is given it: ./x and x have other names
  std::int64_t samples;    ///< wanted
  std::string split_name;  ///< "train", "valid", "test"
  std::uint32_t seed;
  std::int64_t seq_length;
  std::string split;      ///< the string as core is given it
  std::string tokenizer;  ///< JSON object of what identifies core's tokenizer (its unique_identifiers)
};

/// @throws ConfigError if the split or the tokenizer's JSON is none.
std::string core_description(const CoreDataset& dataset);

/// Of a blend of `datasets` with weights that add up to 1.
std::string core_blend_description(std::span<const CoreDataset> datasets, std::string_view split_name,
                                   std::span<const double> weights, std::int64_t size);

/// 32 hexadecimal digits of the MD5 of a description.
std::string core_hash(std::string_view description);

/// "HASH-GPTDataset-SPLIT-document_index.npy" and so on in a folder, and where the description itself lies.
struct CoreFiles {
  std::string description;
  CacheFiles arrays;
};
CoreFiles core_files(const std::string& folder, std::string_view description, std::string_view split_name);

}  // namespace espalier::data_indexed
