// `trainer data indices`: index arrays as files, under plain names or under those of Megatron-LM core's cache.
#include <array>
#include <charconv>
#include <filesystem>

#include "cache.hpp"
#include "core_names.hpp"
#include "fail.hpp"
#include "index_file.hpp"
#include "output_file.hpp"
#include "splits.hpp"
#include "tool.hpp"

namespace espalier::data_indexed {
namespace {

std::string number(std::int64_t value) { return std::to_string(value); }

std::array<std::int64_t, 3> parse_samples(const ConfigView& options) {
  const std::string text = options.string("samples");
  std::array<std::int64_t, 3> wanted{};
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  for (std::size_t k = 0; k < 3; ++k) {
    const auto [next, error] = std::from_chars(at, end, wanted[k]);
    const bool last = k == 2;
    if (error != std::errc() || wanted[k] < 0 || (last ? next != end : next == end || *next != ',')) {
      options.fail("samples", "\"" + text + "\" is not TRAIN,VALID,TEST, three numbers of samples such as 1000,50,5");
    }
    at = next + (last ? 0 : 1);
  }
  return wanted;
}

/// What core's names follow from, but for each split's own; without a tokenizer: plain names.
CoreDataset core_dataset(const ConfigView& options) {
  CoreDataset core{options.string("dataset_path"),
                   0,
                   "",
                   static_cast<std::uint32_t>(options.integer("seed")),
                   options.integer("seq_length"),
                   options.string("split"),
                   options.string("tokenizer_identity")};
  if (core.tokenizer.empty() && !core.path.empty()) {
    options.fail("dataset_path", "is for the names of megatron_core's cache, which need tokenizer_identity, too");
  }
  if (!core.tokenizer.empty() && options.string("sampling") != "megatron_core") {
    options.fail("tokenizer_identity", "names files as megatron_core's cache does; give sampling megatron_core, too");
  }
  if (core.path.empty()) {
    core.path = options.string("prefix");
  }
  return core;
}

/// Where the arrays belong. A reader takes the arrays for granted when all files are there, so the description comes
/// first, as in core.
CoreFiles write_core_description(const CoreDataset& core, const std::string& folder) {
  const std::string description = core_description(core);
  CoreFiles files = core_files(folder, description, core.split_name);
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  OutputFile file(files.description);
  file.write(description.data(), description.size());
  file.finish();
  file.rename_into_place();
  return files;
}

}  // namespace

std::string IndexedTool::indices(const ConfigView& options) const {
  const IndexedFile file = IndexedFile::open(options.string("prefix"));
  const Sampling sampling = *sampling_of_name(options.string("sampling"));
  SampleRules rules{sampling, !options.boolean("no_extra_token"), false};
  if (sampling == Sampling::bigscience && (options.boolean("no_extra_token") || options.boolean("keep_partial"))) {
    options.fail("sampling", "\"bigscience\" knows neither no_extra_token nor keep_partial; they are megatron_core's");
  }
  std::array<SequenceRange, 3> ranges;
  try {
    ranges = split_ranges(options.string("split"), file.sequences(), sampling);
  } catch (const ConfigError& error) {
    options.fail("split", error.what());
  }
  const auto wanted = parse_samples(options);
  CoreDataset core = core_dataset(options);
  const std::filesystem::path out = options.string("out");
  const char* const names[] = {"train", "valid", "test"};
  std::string text;
  for (std::size_t k = 0; k < 3; ++k) {
    if (ranges[k].count() <= 0) {
      text += std::string(names[k]) + ": no sequences\n";
      continue;
    }
    rules.keep_partial = k == 1 && options.boolean("keep_partial");
    const IndexRequest request{&file,
                               "",
                               names[k],
                               ranges[k],
                               wanted[k],
                               options.integer("seq_length"),
                               static_cast<std::uint32_t>(options.integer("seed")),
                               rules};
    const std::string stem = (out / names[k]).string();
    CoreFiles files{"", {stem + "_doc_idx.npy", stem + "_sample_idx.npy", stem + "_shuffle_idx.npy"}};
    if (!core.tokenizer.empty()) {
      core.samples = wanted[k];
      core.split_name = names[k];
      files = write_core_description(core, out.string());
    }
    const EpochPlan plan = export_index(request, files.arrays);
    text += std::string(names[k]) + ": sequences " + number(ranges[k].begin) + " to " + number(ranges[k].end) + ", " +
            number(plan.tokens_per_epoch) + " tokens, " + number(plan.epochs) + " epochs" +
            (plan.separate_last_epoch ? " (the last one apart)" : "") + ", " + number(plan.samples) + " samples\n";
  }
  return text;
}

}  // namespace espalier::data_indexed
