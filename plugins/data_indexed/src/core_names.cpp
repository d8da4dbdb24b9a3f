#include "core_names.hpp"

#include <array>
#include <boost/uuid/detail/md5.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fail.hpp"

namespace espalier::data_indexed {
namespace {

using Json = nlohmann::ordered_json;  // its order, its shortest numbers and its ASCII are Python's

/// [begin, end] of each split as running sums of its share, null without one. core starts from the whole number 0.
Json split_matrix(const std::string& split) {
  const std::array<double, 3> shares = parse_split(split);
  const double sum = shares[0] + shares[1] + shares[2];
  Json rows = Json::array();
  Json begin = 0;
  double reached = 0.0;
  for (const double share : shares) {
    const double before = reached;
    reached += share / sum;
    rows.push_back(reached > before ? Json::array({begin, reached}) : Json());
    begin = reached;
  }
  return rows;
}

Json description_of(const CoreDataset& dataset) {
  const Json tokenizer = Json::parse(dataset.tokenizer, nullptr, false);
  if (!tokenizer.is_object()) {
    fail_config("tokenizer_identity",
                "\"" + dataset.tokenizer +
                    "\" is no JSON object; it is what Megatron calls the tokenizer's unique_identifiers, as in "
                    "{\"class\": \"GPTSentencePieceTokenizer\", \"tokenizer_path\": [\"x.model\"]}");
  }
  return {{"class", "GPTDataset"},          {"dataset_path", dataset.path},
          {"num_samples", dataset.samples}, {"index_split", dataset.split_name},
          {"random_seed", dataset.seed},    {"sequence_length", dataset.seq_length},
          {"split", dataset.split},         {"split_matrix", split_matrix(dataset.split)},
          {"tokenizer", tokenizer}};
}

std::string text_of(const Json& json) {
  try {
    return json.dump(4, ' ', true);
  } catch (const Json::exception&) {
    fail_config("dataset_path", "is not valid UTF-8, so Megatron has no name for its cache");
  }
}

}  // namespace

std::string core_description(const CoreDataset& dataset) { return text_of(description_of(dataset)); }

std::string core_blend_description(std::span<const CoreDataset> datasets, std::string_view split_name,
                                   std::span<const double> weights, std::int64_t size) {
  Json parts = Json::array();
  for (const CoreDataset& dataset : datasets) {
    parts.push_back(description_of(dataset));
  }
  return text_of({{"class", "BlendedDataset"},
                  {"datasets", parts},
                  {"split", split_name},
                  {"weights", std::vector<double>(weights.begin(), weights.end())},
                  {"size", size}});
}

std::string core_hash(std::string_view description) {
  boost::uuids::detail::md5 hash;
  hash.process_bytes(description.data(), description.size());
  boost::uuids::detail::md5::digest_type digest;
  hash.get_digest(digest);
  static_assert(sizeof digest == 16);
  std::string text;
  for (const auto part : digest) {  // 32-bit words up to Boost 1.85, then bytes
    for (int shift = 8 * static_cast<int>(sizeof part) - 4; shift >= 0; shift -= 4) {
      text += "0123456789abcdef"[(part >> shift) & 15U];
    }
  }
  return text;
}

CoreFiles core_files(const std::string& folder, std::string_view description, std::string_view split_name) {
  const std::string stem =
      (std::filesystem::path(folder) / (core_hash(description) + "-GPTDataset-" + std::string(split_name) + "-"))
          .string();
  return {stem + "description.txt",
          {stem + "document_index.npy", stem + "sample_index.npy", stem + "shuffle_index.npy"}};
}

}  // namespace espalier::data_indexed
