#include "cache.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <vector>

#include "fail.hpp"
#include "fingerprint.hpp"
#include "npy.hpp"
#include "output_file.hpp"

namespace espalier::data_indexed {
namespace {

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

EpochPlan plan_of(const IndexRequest& request) {
  return plan_epochs(request.file->tokens_in(request.range.begin, request.range.end), request.samples_wanted,
                     request.seq_length);
}

/// One line each, so that the first line that differs says what changed.
std::string settings_text(const IndexRequest& request, const EpochPlan& plan) {
  std::ostringstream text;
  text << "format = espalier index cache 1\n"
       << "sampling = bigscience\n"
       << "data fingerprint = " << hexadecimal(request.file->fingerprint()) << '\n'
       << "data sequences = " << request.file->sequences() << '\n'
       << "data tokens = " << request.file->tokens() << '\n'
       << "sequences of the split = " << request.range.begin << " to " << request.range.end << '\n'
       << "samples wanted = " << request.samples_wanted << '\n'
       << "sequence length = " << request.seq_length << '\n'
       << "seed = " << request.seed << '\n'
       << "epochs = " << plan.epochs << '\n'
       << "separate last epoch = " << (plan.separate_last_epoch ? "yes" : "no") << '\n'
       << "samples = " << plan.samples << '\n';
  return text.str();
}

std::string check_line(const char* what, std::uint64_t sum) {
  return std::string(what) + " xxh3 = " + hexadecimal(sum) + "\n";
}

std::optional<std::string> difference(std::string_view cached, std::string_view now) {
  while (!now.empty()) {
    const auto line_of = [](std::string_view& text) {
      const auto end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      return line;
    };
    const std::string_view before = line_of(cached);
    const std::string_view wanted = line_of(now);
    if (before != wanted) {
      return "it was made with \"" + std::string(before) + "\", now it is \"" + std::string(wanted) + "\"";
    }
  }
  return std::nullopt;
}

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    return std::nullopt;
  }
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

struct Opened {
  NpyArray document;
  NpyArray sample;
  NpyArray shuffle;
};

using Shape = std::vector<std::int64_t>;

/// The three arrays when their types and shapes are those of the plan.
std::optional<Opened> open_arrays(const IndexRequest& request, const EpochPlan& plan, std::string& why) {
  const CacheFiles files = cache_files(request);
  auto document = NpyArray::open(files.document, why);
  auto sample = document ? NpyArray::open(files.sample, why) : std::nullopt;
  auto shuffle = sample ? NpyArray::open(files.shuffle, why) : std::nullopt;
  if (!shuffle) {
    return std::nullopt;
  }
  const auto fits = [&](const NpyArray& array, const Shape& shape, std::string_view narrow, std::string_view wide) {
    if (array.shape() == shape && (array.descr() == narrow || array.descr() == wide)) {
      return true;
    }
    why = array.mapping()->path() + ": is not an array of " + std::to_string(shape[0]) + " rows of type " +
          std::string(narrow);
    return false;
  };
  if (!fits(*document, {request.range.count() * plan.epochs}, "<i4", "<i4") ||
      !fits(*sample, {plan.samples + 1, 2}, "<i4", "<i8") || !fits(*shuffle, {plan.samples}, "<u4", "<i8")) {
    return std::nullopt;
  }
  return Opened{std::move(*document), std::move(*sample), std::move(*shuffle)};
}

std::optional<std::string> settings_differ(const IndexRequest& request, const EpochPlan& plan, std::string& cached) {
  const std::string path = cache_files(request).check;
  const auto text = read_text(path);
  if (!text) {
    return "there is no " + path;
  }
  cached = *text;
  if (auto changed = difference(cached, settings_text(request, plan))) {
    return path + ": " + *changed;
  }
  return std::nullopt;
}

template <typename T>
void store_array(OutputFile& file, const std::vector<T>& elements, const Shape& shape, std::string& checks,
                 const char* what) {
  write_npy<T>(file, elements, shape);
  file.sync();
  checks += check_line(what, checksum(elements.data(), elements.size() * sizeof(T)));
}

}  // namespace

CacheFiles cache_files(const IndexRequest& request) {
  std::string stem = request.file->prefix();
  if (!request.folder.empty()) {
    // Pairs of several folders often share their last name; a hash of the whole path keeps their arrays apart.
    const std::filesystem::path path = std::filesystem::absolute(stem).lexically_normal();
    const std::string whole = path.string();
    const std::string name =
        path.filename().string() + "_" + hexadecimal(checksum(whole.data(), whole.size())).substr(8);
    stem = (std::filesystem::path(request.folder) / name).string();
  }
  stem += "_" + request.name + "_indexmap_" + std::to_string(request.samples_wanted) + "ns_" +
          std::to_string(request.seq_length) + "sl_" + std::to_string(request.seed) + "s_";
  return {stem + "doc_idx.npy", stem + "sample_idx.npy", stem + "shuffle_idx.npy", stem + "check.txt"};
}

std::optional<std::string> why_not_cached(const IndexRequest& request) {
  const EpochPlan plan = plan_of(request);
  const CacheFiles files = cache_files(request);
  std::error_code ignored;
  bool any = false;
  for (const auto* path : {&files.document, &files.sample, &files.shuffle, &files.check}) {
    any = any || std::filesystem::exists(*path, ignored);
  }
  if (!any) {
    return "there is none yet";
  }
  std::string cached;
  if (auto differ = settings_differ(request, plan, cached)) {
    return differ;
  }
  std::string why;
  const auto arrays = open_arrays(request, plan, why);
  if (!arrays) {
    return why;
  }
  const std::pair<const char*, const NpyArray*> checks[] = {
      {"doc_idx", &arrays->document}, {"sample_idx", &arrays->sample}, {"shuffle_idx", &arrays->shuffle}};
  for (const auto& [what, array] : checks) {
    if (cached.find(check_line(what, checksum(array->data(), array->data_bytes()))) == std::string::npos) {
      return array->mapping()->path() + ": its checksum is not the one it was written with; the file was damaged";
    }
  }
  return std::nullopt;
}

namespace {

int store_index_files(const IndexRequest& request, const std::function<void()>& before_rename) {
  const EpochPlan plan = plan_of(request);
  const CacheFiles files = cache_files(request);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(files.document).parent_path(), error);  // of data.cache_dir
  OutputFile document_file(files.document);  // opened first: an unwritable folder shows before the work
  OutputFile sample_file(files.sample);
  OutputFile shuffle_file(files.shuffle);
  OutputFile check_file(files.check);

  std::string checks;
  NumpyRandom random(request.seed);
  const auto order = build_document_index(plan, request.range, random);
  const auto entries = static_cast<std::int64_t>(order.size());
  const int bits = sample_index_bits(entries);
  store_array(document_file, order, {entries}, checks, "doc_idx");
  const SampleIndex rows = build_sample_index(plan, order, request.file->sizes(), request.file->sequences(),
                                              request.file->prefix() + ".idx", bits);
  std::visit(
      [&](const auto& elements) {
        store_array(sample_file, elements, {plan.samples + 1, 2}, checks, "sample_idx");
      },
      rows);
  std::visit([&](const auto& elements) { store_array(shuffle_file, elements, {plan.samples}, checks, "shuffle_idx"); },
             build_shuffle_index(plan, random));
  const std::string text = settings_text(request, plan) + checks;
  check_file.write(text.data(), text.size());
  check_file.sync();

  if (before_rename) {
    before_rename();
  }
  // Without its check file a half-replaced set is no cache.
  if (::unlink(files.check.c_str()) != 0 && errno != ENOENT) {
    fail_io(files.check, "cannot be replaced", errno);
  }
  document_file.rename_into_place();
  sample_file.rename_into_place();
  shuffle_file.rename_into_place();
  check_file.rename_into_place();
  sync_folder_of(files.check);
  return bits;
}

}  // namespace

int store_index(const IndexRequest& request, const std::function<void()>& before_rename) {
  try {
    return store_index_files(request, before_rename);
  } catch (const IoError& error) {
    throw IoError(std::string(error.what()) + "; the index cache may lie in another folder: data.cache_dir");
  }
}

IndexArrays load_index(const IndexRequest& request) {
  const EpochPlan plan = plan_of(request);
  const CacheFiles files = cache_files(request);
  std::string cached;
  std::string why;
  if (auto differ = settings_differ(request, plan, cached)) {
    fail_io(files.check, "the index cache changed while the run started, perhaps by another job: " + *differ +
                             "; give each job its own data.cache_dir");
  }
  auto opened = open_arrays(request, plan, why);
  if (!opened) {
    fail_io(files.check, "the index cache cannot be read on this rank: " + why);
  }
  IndexArrays arrays;
  arrays.plan_ = plan;
  arrays.document_entries_ = opened->document.elements();
  arrays.document_ = reinterpret_cast<const std::int32_t*>(opened->document.data());
  if (opened->sample.descr() == "<i4") {
    arrays.sample32_ = reinterpret_cast<const std::int32_t*>(opened->sample.data());
  } else {
    arrays.sample64_ = reinterpret_cast<const std::int64_t*>(opened->sample.data());
  }
  if (opened->shuffle.descr() == "<u4") {
    arrays.shuffle32_ = reinterpret_cast<const std::uint32_t*>(opened->shuffle.data());
  } else {
    arrays.shuffle64_ = reinterpret_cast<const std::int64_t*>(opened->shuffle.data());
  }
  arrays.mappings_[0] = opened->document.mapping();
  arrays.mappings_[1] = opened->sample.mapping();
  arrays.mappings_[2] = opened->shuffle.mapping();
  return arrays;
}

}  // namespace espalier::data_indexed
