#include "tool.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <iterator>

#include "cache.hpp"
#include "fail.hpp"
#include "index_writer.hpp"

namespace espalier::data_indexed {
namespace {

constexpr OptionSpec kInspectOptions[] = {
    {"prefix", OptionType::string, nullptr, "the pair's path without .bin and .idx"},
    {"json", OptionType::boolean, "false", "as a JSON object"},
};
constexpr OptionSpec kMergeOptions[] = {
    {"output", OptionType::string, nullptr, "prefix of the pair to write"},
    {"prefix", OptionType::strings, nullptr, "the pairs, in their order"},
    {"join_open_documents", OptionType::boolean, "false",
     "a last document that was never closed runs on into the next pair, as in the peers, instead of being refused"},
};
constexpr OptionSpec kVerifyOptions[] = {
    {"prefix", OptionType::strings, nullptr, "the pairs"},
    {"cache_dir", OptionType::string, "\"\"", "folder of the cached arrays; empty: beside each pair"},
    {"vocab", OptionType::integer, "0", "every token id must be below it; 0: ids are not read", 0.0, 2147483648.0},
};
constexpr OptionSpec kIndicesOptions[] = {
    {"prefix", OptionType::string, nullptr, "the pair's path without .bin and .idx"},
    {"sampling", OptionType::string, "\"bigscience\"", "whose rules", -1.0, 1.0, "bigscience|megatron_core"},
    {"split", OptionType::string, nullptr, "shares of train, validation and test, as 949,50,1"},
    {"seq_length", OptionType::integer, nullptr, "tokens of a sample", 1.0, 2147483647.0},
    {"samples", OptionType::string, nullptr, "samples wanted of train, validation and test, as 1000,50,5"},
    {"seed", OptionType::integer, nullptr, "of the shuffles", 0.0, 4294967295.0},
    {"out", OptionType::string, nullptr, "folder to write to; it is made"},
    {"no_extra_token", OptionType::boolean, "false", "megatron_core: samples of seq_length tokens that do not overlap"},
    {"keep_partial", OptionType::boolean, "false", "megatron_core: the last, short validation sample counts"},
    {"tokenizer_identity", OptionType::string, "\"\"",
     "megatron_core: its tokenizer's unique_identifiers as JSON; names the files as its cache does"},
    {"dataset_path", OptionType::string, "\"\"",
     "with tokenizer_identity: the path as Megatron is given it; empty: the prefix"},
};

constexpr OptionSpec job(const char* name, const char* help, const OptionSpec* nested, std::size_t count) {
  return {name, OptionType::table, "", help, 0.0, 0.0, nullptr, nested, count};
}

std::string number(std::int64_t value) { return std::to_string(value); }

std::string quoted(const std::string& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      result += std::string("\\u00") + kDigits[byte >> 4] + kDigits[byte & 15];
    } else {
      result += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
  }
  return result + "\"";
}

struct Sizes {
  std::int32_t smallest = 0, median = 0, largest = 0;
  std::int64_t empty = 0;
};

Sizes sizes_of(const IndexedFile& file) {
  std::vector<std::int32_t> sizes(static_cast<std::size_t>(file.sequences()));
  for (std::int64_t i = 0; i < file.sequences(); ++i) {
    sizes[static_cast<std::size_t>(i)] = file.size(i);
  }
  Sizes result;
  if (sizes.empty()) {
    return result;
  }
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  result.median = *middle;
  const auto [low, high] = std::minmax_element(sizes.begin(), sizes.end());
  result.smallest = *low;
  result.largest = *high;
  result.empty = std::count(sizes.begin(), sizes.end(), 0);
  return result;
}

/// Token ids of a pair against a vocabulary. @throws IoError naming the first that is outside.
void check_ids(const IndexedFile& file, std::int64_t vocab) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < file.sequences(); ++i) {
    tokens.resize(static_cast<std::size_t>(file.size(i)));
    file.read(i, 0, std::span(tokens));
    const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](std::int64_t id) { return id < 0 || id >= vocab; });
    if (bad != tokens.end()) {
      fail_io(file.prefix() + ".bin", "token " + number(bad - tokens.begin()) + " of sequence " + number(i) + " is " +
                                          number(*bad) + ", but the vocabulary has ids 0 to " + number(vocab - 1));
    }
  }
}

/// The order of a blend is kept beside the first of its pairs, and is not made from its data.
bool is_blend(const std::string& name) { return name.find("_blend_") != std::string::npos; }

/// The .npy files of a pair's cache, sorted. Another pair's name may start like this one's ("en" and "en_books"): what
/// has a check file of another pair's data is told apart by its fingerprint.
std::vector<std::string> cached_arrays(const IndexedFile& file, const std::string& folder) {
  const std::filesystem::path stem = cache_stem(file.prefix(), folder);
  const std::string start = stem.filename().string() + "_";
  std::vector<std::string> found;
  std::error_code error;
  const auto parent = stem.parent_path().empty() ? std::filesystem::path(".") : stem.parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename().string();
    const bool index = name.ends_with("_idx.npy") && name.find("map_", start.size()) != std::string::npos;
    const bool blend = is_blend(name) && (name.ends_with("_parts.npy") || name.ends_with("_counts.npy"));
    if (name.starts_with(start) && (index || blend)) {
      found.push_back(entry.path().string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

constexpr OptionSpec kToolJobs[kToolJobCount] = {
    job("inspect", "what a pair holds", kInspectOptions, std::size(kInspectOptions)),
    job("merge", "several pairs into one", kMergeOptions, std::size(kMergeOptions)),
    job("verify", "whether pairs and their cached arrays are whole", kVerifyOptions, std::size(kVerifyOptions)),
    job("indices", "the index arrays of a pair, to compare with Megatron's", kIndicesOptions,
        std::size(kIndicesOptions)),
};

std::string IndexedTool::run() {
  if (config_.has("inspect")) {
    return inspect(config_.table("inspect"));
  }
  if (config_.has("merge")) {
    return merge(config_.table("merge"));
  }
  if (config_.has("verify")) {
    return verify(config_.table("verify"));
  }
  if (config_.has("indices")) {
    return indices(config_.table("indices"));
  }
  fail_config("data", "no job is named; there are inspect, merge, verify and indices");
}

std::string IndexedTool::inspect(const ConfigView& options) const {
  const IndexedFile file = IndexedFile::open(options.string("prefix"));
  const Sizes sizes = sizes_of(file);
  const double mean =
      file.sequences() == 0 ? 0.0 : static_cast<double>(file.tokens()) / static_cast<double>(file.sequences());
  std::error_code ignored;
  const auto data_bytes = static_cast<std::int64_t>(std::filesystem::file_size(file.prefix() + ".bin", ignored));
  if (options.boolean("json")) {
    std::string text =
        "{\"prefix\": " + quoted(file.prefix()) + ", \"dtype\": \"" + std::string(type_name(file.type())) +
        "\", \"type_code\": " + number(type_code(file.type())) + ", \"documents\": " + number(file.documents()) +
        ", \"sequences\": " + number(file.sequences()) + ", \"tokens\": " + number(file.tokens()) +
        ", \"modes\": " + (file.has_modes() ? "true" : "false") + ", \"smallest\": " + number(sizes.smallest) +
        ", \"median\": " + number(sizes.median) + ", \"mean\": " + std::to_string(mean) +
        ", \"largest\": " + number(sizes.largest) + ", \"empty\": " + number(sizes.empty) +
        ", \"idx_bytes\": " + number(file.index_bytes()) + ", \"bin_bytes\": " + number(data_bytes) +
        ", \"fingerprint\": \"" + hexadecimal(file.fingerprint()) + "\", \"warnings\": [";
    for (std::size_t k = 0; k < file.warnings().size(); ++k) {
      text += (k == 0 ? "" : ", ") + quoted(file.warnings()[k]);
    }
    return text + "]}\n";
  }
  std::string text =
      file.prefix() + "\n  type         " + std::string(type_name(file.type())) + " (code " +
      number(type_code(file.type())) + ")\n  documents    " + number(file.documents()) + "\n  sequences    " +
      number(file.sequences()) + ", " + number(sizes.empty) + " of them empty\n  tokens       " +
      number(file.tokens()) + "\n  a sequence   " + number(sizes.smallest) + " to " + number(sizes.largest) +
      " tokens, median " + number(sizes.median) + ", mean " + std::to_string(mean) + "\n  modes        " +
      (file.has_modes() ? "one a sequence" : "none") + "\n  bytes        " + number(file.index_bytes()) + " (.idx), " +
      number(data_bytes) + " (.bin)\n  fingerprint  " + hexadecimal(file.fingerprint()) + "\n";
  for (const std::string& warning : file.warnings()) {
    text += "  warning: " + warning + "\n";
  }
  return text;
}

std::string IndexedTool::merge(const ConfigView& options) const {
  const std::string output = options.string("output");
  std::vector<IndexedFile> parts;
  for (const std::string& prefix : options.strings("prefix")) {
    std::error_code ignored;
    if (std::filesystem::equivalent(prefix + ".idx", output + ".idx", ignored)) {
      options.fail("output", "\"" + output + "\" is one of the pairs to merge; give the result a name of its own");
    }
    parts.push_back(IndexedFile::open(prefix));  // all are checked whole before a byte is written
    for (const std::string& warning : parts.back().warnings()) {
      host_.log(LogLevel::warning, warning);
    }
    if (parts.back().type() != parts.front().type()) {
      options.fail("prefix", "\"" + prefix + "\" holds " + std::string(type_name(parts.back().type())) + ", \"" +
                                 parts.front().prefix() + "\" " + std::string(type_name(parts.front().type())) +
                                 "; pairs of one type only can be merged");
    }
  }
  if (parts.empty()) {
    options.fail("prefix", "names no pair");
  }
  const bool join = options.boolean("join_open_documents");
  IndexWriter writer(output, parts.front().type());
  for (const IndexedFile& part : parts) {
    writer.append(part, join);
  }
  writer.finish(join);  // the last one has no part to run on into
  return output + ": " + number(static_cast<std::int64_t>(parts.size())) + " pairs, " + number(writer.documents()) +
         " documents, " + number(writer.sequences()) + " sequences, " + number(writer.tokens()) + " tokens\n";
}

std::string IndexedTool::verify(const ConfigView& options) const {
  if (const std::string folder = options.string("cache_dir");
      !folder.empty() && !std::filesystem::is_directory(folder)) {
    options.fail("cache_dir", "\"" + folder + "\" is not a folder, so no cached array was looked at");
  }
  std::string text;
  std::string damage;
  for (const std::string& prefix : options.strings("prefix")) {
    const IndexedFile file = IndexedFile::open(prefix);
    for (const std::string& warning : file.warnings()) {
      host_.log(LogLevel::warning, warning);
    }
    if (options.integer("vocab") > 0) {
      check_ids(file, options.integer("vocab"));
    }
    text += prefix + ": whole, " + number(file.sequences()) + " sequences, " + number(file.tokens()) + " tokens" +
            (options.integer("vocab") > 0 ? ", all ids below " + number(options.integer("vocab")) : "") + "\n";
    for (const std::string& array : cached_arrays(file, options.string("cache_dir"))) {
      std::string why;
      auto check = BlockCheck::read(check_path(array), why);
      if (!check && !std::filesystem::exists(check_path(array))) {
        text += array + ": no check file; it is not used, only another program's arrays have none\n";
        continue;
      }
      const bool of_data = !is_blend(std::filesystem::path(array).filename().string());
      if (check && of_data && check->setting("data fingerprint") != hexadecimal(file.fingerprint())) {
        text += array + ": of other data; the next start that needs it builds it anew\n";
        continue;
      }
      try {
        auto mapping = check ? MappedFile::open(array) : nullptr;
        if (check && static_cast<std::int64_t>(mapping->size_bytes()) != check->bytes) {
          why = array + ": has " + number(static_cast<std::int64_t>(mapping->size_bytes())) + " bytes, " +
                number(check->bytes) + " were written";
          check.reset();
        }
        if (check) {
          const auto blocks = static_cast<std::int64_t>(check->blocks.size());
          CheckedFile(std::move(mapping), std::move(*check), check_path(array)).check_all();
          text += array + ": whole, " + number(blocks) + " blocks\n";
          continue;
        }
      } catch (const IoError& error) {
        why = error.what();
      }
      damage += (damage.empty() ? "" : "\n") + why;
    }
  }
  if (!damage.empty()) {
    throw IoError(damage);
  }
  return text;
}

}  // namespace espalier::data_indexed
