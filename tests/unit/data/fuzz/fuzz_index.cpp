// libFuzzer: bytes as an .idx beside a .bin, as a cached array, as a check file, as a list of paths, as a split. The first byte says
// which. Whatever comes must be refused with an error of the library, or be usable to its end without reading outside the files.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "block_check.hpp"
#include "cache.hpp"
#include "espalier/error.hpp"
#include "index_file.hpp"
#include "index_writer.hpp"
#include "npy.hpp"
#include "path_list.hpp"
#include "sample_reader.hpp"
#include "splits.hpp"

namespace {

using namespace espalier::data_indexed;

void require(bool holds) {
  if (!holds) std::abort();
}

const std::string& folder() {
  static const std::string given = [] {
    const char* name = std::getenv("FUZZ_FOLDER");
    require(name != nullptr);
    return std::string(name) + "/";
  }();
  return given;
}

void write_file(const std::string& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  require(file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() && std::fclose(file) == 0);
}

/// What was accepted adds up, and every token of it can be read.
void read_all(const IndexedFile& file) {
  std::int64_t tokens = 0;
  std::vector<std::int64_t> target;
  std::vector<double> values;
  for (std::int64_t i = 0; i < file.sequences(); ++i) {
    require(file.size(i) >= 0);
    tokens += file.size(i);
    if (is_integer(file.type())) {
      target.resize(static_cast<std::size_t>(file.size(i)));
      file.read(i, 0, std::span(target));
    } else {
      values.resize(static_cast<std::size_t>(file.size(i)));
      file.read(i, 0, std::span(values));
    }
    require(file.view(i).count == file.size(i));
    if (file.has_modes()) static_cast<void>(file.mode(i));
  }
  require(tokens == file.tokens() && tokens == file.tokens_in(0, file.sequences()));
  for (std::int64_t k = 0; k < file.documents(); ++k) {
    require(file.document_begin(k) <= file.document_begin(k + 1) && file.document_begin(k + 1) <= file.sequences());
  }
}

/// Index arrays and samples of it, by either rules.
void sample(const IndexedFile& file, std::uint8_t choice) {
  if (!is_integer(file.type()) || file.tokens() == 0 || file.tokens() > 10'000) return;
  SampleRules rules;
  rules.sampling = (choice & 1) != 0 ? Sampling::megatron_core : Sampling::bigscience;
  rules.extra_token = rules.sampling == Sampling::bigscience || (choice & 2) != 0;
  rules.keep_partial = rules.sampling == Sampling::megatron_core && (choice & 4) != 0;
  const IndexRequest request{&file, "", "train", {0, file.sequences()}, 1 + choice % 30, 1 + choice % 7, choice, rules};
  store_index(request, {{}, false, false});
  const SampleReader reader(file, load_index(request), 60000);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(request.seq_length + 1));
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(request.seq_length));
  for (std::int64_t i = 0; i < reader.samples(); ++i) {
    try {
      reader.read(i, tokens, mask);
    } catch (const espalier::IoError&) {
      // A token outside the vocabulary, or wider than 32 bits.
    }
  }
  for (const std::string& path : cache_files(request).all()) {
    ::unlink(path.c_str());
    ::unlink((path + ".check").c_str());
  }
}

/// A merge of what was accepted with itself is accepted, with twice of everything.
void merge(const IndexedFile& file) {
  IndexWriter writer(folder() + "merged", file.type());
  writer.append(file, true);
  writer.append(file, true);
  writer.finish(true);
  const auto merged = IndexedFile::open(folder() + "merged");
  require(merged.sequences() == 2 * file.sequences() && merged.tokens() == 2 * file.tokens());
  require(merged.has_modes() == file.has_modes());
}

void index(std::string_view bytes, std::uint8_t choice) {
  // The .bin has as many bytes as the header would need with one-byte tokens, times a small factor, or a few.
  std::uint64_t tokens = 0;
  if (bytes.size() > 34) {
    std::uint64_t count = 0;
    std::memcpy(&count, bytes.data() + 18, sizeof count);
    for (std::uint64_t k = 0; k < count && 34 + 4 * (k + 1) <= bytes.size(); ++k) {
      std::uint32_t size = 0;
      std::memcpy(&size, bytes.data() + 34 + 4 * k, sizeof size);
      tokens += size % 100'000;
    }
  }
  constexpr int kWidths[] = {1, 2, 4, 8};
  const std::uint64_t data_bytes = std::min<std::uint64_t>(tokens, 4'000) * kWidths[choice % 4] + choice / 64;
  write_file(folder() + "pair.idx", bytes);
  std::string data(data_bytes, '\0');
  for (std::size_t k = 0; k < data.size(); ++k) data[k] = static_cast<char>(k * 37);
  write_file(folder() + "pair.bin", data);
  const auto file = IndexedFile::open(folder() + "pair");
  read_all(file);
  sample(file, choice);
  merge(file);
}

void array(std::string_view bytes) {
  write_file(folder() + "array.npy", bytes);
  std::string why;
  const auto array = NpyArray::open(folder() + "array.npy", why);
  require(array.has_value() || !why.empty());
  if (!array) return;
  std::uint64_t sum = 0;
  for (std::size_t k = 0; k < array->data_bytes(); ++k) sum += static_cast<std::uint64_t>(array->data()[k]);
  require(static_cast<std::int64_t>(array->data_bytes()) == array->elements() * (array->descr()[2] - '0') && sum + 1 > 0);
}

void check(std::string_view bytes) {
  const std::string path = folder() + "array.check";
  write_file(path, sealed(std::string(bytes)));
  std::string why;
  const auto read = BlockCheck::read(path, why);
  require(read.has_value() || !why.empty());
  if (!read) return;
  write_file(path, read->to_text());
  const auto again = BlockCheck::read(path, why);
  require(again && again->settings == read->settings && again->bytes == read->bytes && again->blocks == read->blocks);
}

void lists(std::string_view bytes) {
  for (const PathList& list : parse_path_lists(bytes, "list")) {
    for (const PathList::Entry& entry : list.entries) {
      require(entry.weight > 0 && entry.range.start <= entry.range.end);
      const SequenceRange range = range_of(entry.range, 1000);
      require(range.begin >= 0 && range.begin <= range.end && range.end <= 1000);
    }
  }
}

void split(std::string_view bytes, std::uint8_t choice) {
  const auto sampling = (choice & 1) != 0 ? Sampling::megatron_core : Sampling::bigscience;
  const std::int64_t sequences = choice % 2 == 0 ? choice : std::int64_t{choice} << 40;
  for (const SequenceRange& range : split_ranges(bytes, sequences, sampling)) {
    require(range.begin >= 0 && range.begin <= sequences);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  try {
    switch (data[0] % 5) {
      case 0: index(rest, data[1]); break;
      case 1: array(rest); break;
      case 2: check(rest); break;
      case 3: lists(rest); break;
      default: split(rest, data[1]);
    }
  } catch (const espalier::Error&) {
    // Refused.
  }
  return 0;
}
