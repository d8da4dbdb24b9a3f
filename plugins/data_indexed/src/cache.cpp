#include "cache.hpp"

#include <array>
#include <charconv>
#include <filesystem>
#include <future>
#include <new>
#include <span>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "array_file.hpp"
#include "fail.hpp"
#include "fingerprint.hpp"
#include "npy.hpp"
#include "output_file.hpp"

namespace espalier::data_indexed {
namespace {

constexpr const char* kFingerprintKey = "data fingerprint";
constexpr const char* kRangeKey = "sequences of the split";
constexpr const char* kTokensKey = "tokens of the split";

std::string range_text(const SequenceRange& range) {
  return std::to_string(range.begin) + " to " + std::to_string(range.end);
}

/// One line each, so that the first line that differs says what changed.
std::string settings_text(const IndexRequest& request, const EpochPlan& plan) {
  const auto yes = [](bool value) { return value ? "yes" : "no"; };
  std::ostringstream text;
  text << "format = espalier index cache 2\n"
       << "sampling = " << sampling_name(request.rules.sampling) << '\n'
       << kFingerprintKey << " = " << hexadecimal(request.file->fingerprint()) << '\n'
       << "data sequences = " << request.file->sequences() << '\n'
       << "data tokens = " << request.file->tokens() << '\n'
       << kRangeKey << " = " << range_text(request.range) << '\n'
       << kTokensKey << " = " << plan.tokens_per_epoch << '\n'
       << "samples wanted = " << request.samples_wanted << '\n'
       << "sequence length = " << request.seq_length << '\n'
       << "extra token = " << yes(request.rules.extra_token) << '\n'
       << "partial sample kept = " << yes(request.rules.keep_partial) << '\n'
       << "seed = " << request.seed << '\n'
       << "epochs = " << plan.epochs << '\n'
       << "separate last epoch = " << yes(plan.separate_last_epoch) << '\n'
       << "samples = " << plan.samples << '\n';
  return text.str();
}

EpochPlan plan_with(const IndexRequest& request, std::int64_t tokens) {
  return plan_epochs(tokens, request.samples_wanted, request.seq_length, request.rules);
}

/// The tokens that `check` was made with, when it is of the same data and range.
std::optional<std::int64_t> known_tokens(const IndexRequest& request, const BlockCheck& check) {
  const std::string text = check.setting(kTokensKey);
  std::int64_t tokens = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  if (check.setting(kFingerprintKey) != hexadecimal(request.file->fingerprint()) ||
      check.setting(kRangeKey) != range_text(request.range) || error != std::errc() ||
      end != text.data() + text.size() || tokens < 1) {
    return std::nullopt;
  }
  return tokens;
}

/// What the arrays take while they are built, said where it is not there.
template <typename Build>
auto in_memory(const IndexRequest& request, const Build& build) {
  const auto refuse = [&]() -> void {
    const EpochPlan plan = plan_with(request, tokens_of(request));
    const double entries = static_cast<double>(request.range.count()) * static_cast<double>(plan.epochs);
    const double bytes = 4 * entries + 12 * static_cast<double>(plan.samples);
    throw DeviceError(
        request.file->prefix() + ": the index arrays of " + std::to_string(request.samples_wanted) + " samples (" +
        std::to_string(plan.epochs) + " epochs) take about " +
        std::to_string(static_cast<std::int64_t>(bytes / 1e9) + 1) +
        " GB of memory, which this machine does not give; ask for fewer samples, or build them where there is more");
  };
  try {
    return build();
  } catch (const std::bad_alloc&) {
    refuse();
  } catch (const std::length_error&) {
    refuse();
  }
  return decltype(build()){};
}

int store_index_files(const IndexRequest& request, const StoreOptions& options) {
  const EpochPlan plan = plan_with(request, request.file->tokens_in(request.range.begin, request.range.end));
  const CacheFiles files = cache_files(request);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(files.document).parent_path(), error);  // of data.cache_dir
  // Opened first: an unwritable folder shows before the work.
  std::array<ArrayOutput, 3> outputs{ArrayOutput(files.document), ArrayOutput(files.sample),
                                     ArrayOutput(files.shuffle)};
  const std::string settings = settings_text(request, plan);

  NumpyRandom random(request.seed);
  const auto shuffle = [&] {
    std::visit([&](const auto& elements) { outputs[2].store(elements, {plan.samples}, options.sync); },
               build_shuffle_index(plan, random));
  };
  const auto order = build_document_index(plan, request.range, random);
  // The sample index draws nothing, so both may go on from here at once.
  std::future<void> beside;
  if (options.two_threads) {
    beside = std::async(std::launch::async, shuffle);
  }
  const auto entries = static_cast<std::int64_t>(order.size());
  const int bits = sample_index_bits(entries);
  outputs[0].store(order, {entries}, options.sync);
  std::visit(
      [&](const auto& elements) {
        outputs[1].store(elements, {plan.samples + 1, 2}, options.sync);
      },
      build_sample_index(plan, order, request.file->sizes(), request.file->sequences(), request.file->prefix() + ".idx",
                         bits));
  if (beside.valid()) {
    beside.get();
  } else {
    shuffle();
  }
  for (ArrayOutput& output : outputs) {
    output.store_check(settings, options.sync);
  }
  if (options.before_rename) {
    options.before_rename();
  }
  for (ArrayOutput& output : outputs) {
    output.remove_other_check(settings);
  }
  for (ArrayOutput& output : outputs) {
    output.array().rename_into_place();
  }
  for (ArrayOutput& output : outputs) {
    output.check().rename_into_place();
  }
  if (options.sync) {
    sync_folder_of(files.document);
  }
  return bits;
}

EpochPlan export_index_files(const IndexRequest& request, const CacheFiles& paths) {
  const EpochPlan plan = plan_with(request, request.file->tokens_in(request.range.begin, request.range.end));
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(paths.document).parent_path(), error);
  const auto write = [](const std::string& path, const auto& elements, const Shape& shape) {
    OutputFile file(path);
    write_npy(file, std::span(elements), shape);
    file.finish();
    file.rename_into_place();
  };
  NumpyRandom random(request.seed);
  {
    const auto order = build_document_index(plan, request.range, random);
    const auto entries = static_cast<std::int64_t>(order.size());
    write(paths.document, order, {entries});
    std::visit(
        [&](const auto& rows) {
          write(paths.sample, rows, {plan.samples + 1, 2});
        },
        build_sample_index(plan, order, request.file->sizes(), request.file->sequences(),
                           request.file->prefix() + ".idx", sample_index_bits(entries)));
  }
  std::visit([&](const auto& elements) { write(paths.shuffle, elements, {plan.samples}); },
             build_shuffle_index(plan, random));
  return plan;
}

}  // namespace

std::string cache_stem(const std::string& prefix, const std::string& folder) {
  if (folder.empty()) {
    return prefix;
  }
  // Pairs of several folders often share their last name; a hash of the whole path keeps their arrays apart.
  const std::filesystem::path path = std::filesystem::absolute(prefix).lexically_normal();
  const std::string whole = path.string();
  const std::string name = path.filename().string() + "_" + hexadecimal(checksum(whole.data(), whole.size())).substr(8);
  return (std::filesystem::path(folder) / name).string();
}

std::string stamp_path(const std::string& prefix, const std::string& folder) {
  return cache_stem(prefix, folder) + "_pair.check";
}

CacheFiles cache_files(const IndexRequest& request) {
  const bool core = request.rules.sampling == Sampling::megatron_core;
  const std::string stem = cache_stem(request.file->prefix(), request.folder) + "_" + request.name +
                           (core ? "_coremap_" : "_indexmap_") + std::to_string(request.samples_wanted) + "ns_" +
                           std::to_string(request.seq_length) + "sl_" + std::to_string(request.seed) + "s_" +
                           (request.rules.extra_token ? "" : "noextra_") +
                           (request.rules.keep_partial ? "partial_" : "");
  return {stem + "doc_idx.npy", stem + "sample_idx.npy", stem + "shuffle_idx.npy"};
}

std::int64_t tokens_of(const IndexRequest& request) {
  std::string ignored;
  const auto check = BlockCheck::read(check_path(cache_files(request).document), ignored);
  const auto known = check ? known_tokens(request, *check) : std::nullopt;
  return known ? *known : request.file->tokens_in(request.range.begin, request.range.end);
}

std::optional<IndexArrays> open_index(const IndexRequest& request, std::string& why) {
  const std::vector<std::string> paths = cache_files(request).all();
  std::vector<BlockCheck> checks;
  std::optional<EpochPlan> plan;
  for (const std::string& path : paths) {
    auto check = BlockCheck::read(check_path(path), why);
    if (!check) {
      return std::nullopt;
    }
    if (!plan) {
      const auto known = known_tokens(request, *check);
      plan = plan_with(request, known ? *known : tokens_of(request));
    }
    if (auto changed = difference(check->settings, settings_text(request, *plan))) {
      why = check_path(path) + ": " + *changed;
      return std::nullopt;
    }
    checks.push_back(std::move(*check));
  }
  auto document = ArrayFile::open(paths[0], checks[0], {request.range.count() * plan->epochs}, "<i4", "<i4", why);
  auto sample =
      document ? ArrayFile::open(paths[1], checks[1], {plan->samples + 1, 2}, "<i4", "<i8", why) : std::nullopt;
  auto shuffle = sample ? ArrayFile::open(paths[2], checks[2], {plan->samples}, "<u4", "<i8", why) : std::nullopt;
  if (!shuffle) {
    return std::nullopt;
  }
  IndexArrays arrays;
  arrays.plan_ = *plan;
  arrays.document_entries_ = document->array.elements();
  arrays.document_ = reinterpret_cast<const std::int32_t*>(document->array.data());
  if (sample->array.descr() == "<i4") {
    arrays.sample32_ = reinterpret_cast<const std::int32_t*>(sample->array.data());
  } else {
    arrays.sample64_ = reinterpret_cast<const std::int64_t*>(sample->array.data());
  }
  if (shuffle->array.descr() == "<u4") {
    arrays.shuffle32_ = reinterpret_cast<const std::uint32_t*>(shuffle->array.data());
  } else {
    arrays.shuffle64_ = reinterpret_cast<const std::int64_t*>(shuffle->array.data());
  }
  arrays.document_check_ = document->checked;
  arrays.sample_check_ = sample->checked;
  arrays.shuffle_check_ = shuffle->checked;
  return arrays;
}

std::optional<std::string> why_not_cached(const IndexRequest& request) {
  std::error_code ignored;
  bool any = false;
  for (const std::string& path : cache_files(request).all()) {
    any = any || std::filesystem::exists(path, ignored) || std::filesystem::exists(check_path(path), ignored);
  }
  if (!any) {
    return "there is none yet";
  }
  std::string why;
  return open_index(request, why) ? std::nullopt : std::optional(why);
}

int store_index(const IndexRequest& request, const StoreOptions& options) {
  try {
    return in_memory(request, [&] { return store_index_files(request, options); });
  } catch (const IoError& error) {
    throw IoError(std::string(error.what()) + "; the index cache may lie in another folder: data.cache_dir");
  }
}

EpochPlan export_index(const IndexRequest& request, const CacheFiles& paths) {
  return in_memory(request, [&] { return export_index_files(request, paths); });
}

IndexArrays load_index(const IndexRequest& request) {
  std::string why;
  auto arrays = open_index(request, why);
  if (!arrays) {
    fail_io(cache_files(request).document,
            "the index cache cannot be used although it was there a moment ago: " + why +
                "; perhaps another job replaced it: give each job its own data.cache_dir");
  }
  return std::move(*arrays);
}

}  // namespace espalier::data_indexed
