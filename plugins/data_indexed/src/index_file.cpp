#include "index_file.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>

#include "block_check.hpp"
#include "fail.hpp"
#include "fingerprint.hpp"
#include "output_file.hpp"

namespace espalier::data_indexed {
namespace {

std::string number(std::uint64_t value) { return std::to_string(value); }
std::string number(std::int64_t value) { return std::to_string(value); }

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void check_prefix(const std::string& prefix) {
  const std::string form = "give the path of the pair without its extension, as in \"corpus/en_text_document\"";
  if (prefix.empty()) {
    fail_config("path", "the prefix of an indexed dataset is empty; " + form);
  }
  for (const std::string_view extension : {".bin", ".idx"}) {
    if (ends_with(prefix, extension)) {
      fail_config(prefix, "the prefix ends in " + std::string(extension) + "; " + form);
    }
  }
  std::error_code ignored;
  const bool has_index = std::filesystem::exists(prefix + ".idx", ignored);
  const bool has_data = std::filesystem::exists(prefix + ".bin", ignored);
  if (!has_index && !has_data) {
    if (std::filesystem::is_directory(prefix, ignored)) {
      fail_config(prefix, "is a folder, not the prefix of an indexed dataset; " + form);
    }
    fail_io(prefix, "neither " + prefix + ".idx nor " + prefix + ".bin exists; " + form);
  }
  if (!has_index) {
    fail_io(prefix + ".idx",
            "is missing, although " + prefix + ".bin is there; an unfinished preprocessing run leaves that");
  }
  if (!has_data) {
    fail_io(prefix + ".bin", "is missing, although " + prefix + ".idx is there; copy both files of the pair");
  }
}

}  // namespace

IndexedFile IndexedFile::open(const std::string& prefix, const std::string& stamp) {
  check_prefix(prefix);
  IndexedFile file;
  file.prefix_ = prefix;
  file.index_ = MappedFile::open(prefix + ".idx");
  file.data_ = MappedFile::open(prefix + ".bin");
  file.index_->read_ahead(false);  // with a stamp, first and last page are all it takes
  file.check_header();
  file.check_lengths();
  const bool stamped = !stamp.empty() && file.take_from_stamp(stamp);
  if (stamped) {
    file.check_data_length();
    file.warn_of_open_document();
  }
  file.index_->read_ahead(true);
  if (stamped) {
    return file;
  }
  file.check_document_index();
  file.check_sizes_and_pointers();
  const auto header_and_sizes = static_cast<std::size_t>(kIndexHeaderBytes + 4 * file.sequences_);
  Fingerprint fingerprint;
  fingerprint.add_bytes(file.index_->data(), header_and_sizes);
  fingerprint.add(static_cast<std::uint64_t>(file.data_->size_bytes()));
  file.fingerprint_ = fingerprint.value();
  file.index_->forget();  // what was read to check it need not stay: it may be gigabytes
  return file;
}

void IndexedFile::check_header() {
  constexpr char kOldMagic[8] = {'T', 'N', 'T', 'I', 'D', 'X', '\0', '\0'};
  const std::string& path = index_->path();
  const std::byte* bytes = index_->data();
  const std::uint64_t actual = index_->size_bytes();
  if (actual == 0) {
    fail_io(path, "is empty (0 bytes); an index has at least 42");
  }
  if (actual >= sizeof kOldMagic && std::memcmp(bytes, kOldMagic, sizeof kOldMagic) == 0) {
    fail_io(path,
            "is in the older TNTIDX format (\"lazy\" or \"cached\"), which is not read; preprocess the text again");
  }
  if (actual < sizeof kIndexMagic || std::memcmp(bytes, kIndexMagic, sizeof kIndexMagic) != 0) {
    fail_io(path, "is not a Megatron index: its first 9 bytes are not \"MMIDIDX\\0\\0\" (the file has " +
                      number(actual) + " bytes)");
  }
  if (actual < static_cast<std::uint64_t>(kIndexHeaderBytes)) {
    fail_io(path, "is cut inside its header: expected at least 34 bytes, found " + number(actual) + "; copy it again");
  }
  const auto version = load<std::uint64_t>(bytes + 9, 0);
  if (version != kIndexVersion) {
    fail_io(path, "has format version " + number(version) + "; only version 1 is read");
  }
  const auto code = load<std::uint8_t>(bytes + 17, 0);
  const auto type = type_of_code(code);
  if (!type) {
    fail_io(path, "has the unknown type code " + number(std::uint64_t{code}) +
                      "; known are 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 and 7 floats, 8 uint16");
  }
  type_ = *type;
}

void IndexedFile::check_lengths() {
  const std::string& path = index_->path();
  const std::uint64_t actual = index_->size_bytes();
  const auto sequences = load<std::uint64_t>(index_->data() + 18, 0);
  const auto entries = load<std::uint64_t>(index_->data() + 26, 0);
  const auto has = [&](const char* what, std::uint64_t count, std::uint64_t each, std::uint64_t start) {
    // Divided, not multiplied: a damaged count may be near 2^64.
    if (count > (actual - start) / each) {
      const std::string expected =
          count <= std::numeric_limits<std::uint64_t>::max() / 16 ? number(start + count * each) : "more than 2^60";
      fail_io(path, "is cut inside its " + std::string(what) + ": the header promises " + number(count) +
                        " entries, so at least " + expected + " bytes, found " + number(actual) + "; copy it again");
    }
  };
  const auto header = static_cast<std::uint64_t>(kIndexHeaderBytes);
  has("sizes", sequences, 4, header);
  has("pointers", sequences, 8, header + 4 * sequences);
  has("document index", entries, 8, header + 12 * sequences);
  if (entries == 0) {
    fail_io(path, "has a document index without entries; even an empty dataset has its leading 0");
  }
  const std::uint64_t expected = header + 12 * sequences + 8 * entries;
  if (actual != expected && actual != expected + sequences) {
    fail_io(path, "has " + number(actual - expected) + " stray bytes at its end: expected " + number(expected) +
                      " bytes, or " + number(expected + sequences) + " with one mode per sequence, found " +
                      number(actual));
  }
  sequences_ = static_cast<std::int64_t>(sequences);
  document_entries_ = entries;
  sizes_ = index_->data() + kIndexHeaderBytes;
  pointers_ = sizes_ + 4 * sequences;
  documents_ = pointers_ + 8 * sequences;
  if (actual != expected) {
    modes_ = documents_ + 8 * entries;
  }
}

void IndexedFile::check_document_index() {
  const std::string& path = index_->path();
  if (document_begin(0) != 0) {
    fail_io(path, "its document index starts with " + number(document_begin(0)) + " instead of 0");
  }
  std::int64_t last = 0;
  for (std::int64_t k = 1; k <= documents(); ++k) {
    const std::int64_t begin = document_begin(k);
    if (begin < last) {
      fail_io(path,
              "its document index goes down from " + number(last) + " to " + number(begin) + " at entry " + number(k));
    }
    last = begin;
  }
  warn_of_open_document();
}

void IndexedFile::warn_of_open_document() {
  const std::string& path = index_->path();
  const std::int64_t last = document_begin(documents());
  if (last > sequences_) {
    fail_io(path, "its document index ends with " + number(last) + ", but there are only " + number(sequences_) +
                      " sequences");
  }
  if (last < sequences_) {
    warnings_.push_back(path + ": its last document was never closed: the document index ends with " + number(last) +
                        " of " + number(sequences_) + " sequences; the loose sequences are used like the others");
  }
}

void IndexedFile::check_sizes_and_pointers() {
  const std::string& path = index_->path();
  // Negative sizes first, in a loop that vectorizes; the sum of n < 2^61 non-negative int32 cannot overflow.
  std::int32_t all_bits = 0;
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < sequences_; ++i) {
    all_bits |= size(i);
    tokens += size(i);
  }
  for (std::int64_t i = 0; all_bits < 0 && i < sequences_; ++i) {
    if (size(i) < 0) {
      fail_io(path, "sequence " + number(i) + " has the negative size " + number(std::int64_t{size(i)}));
    }
  }
  tokens_ = tokens;

  const auto actual = static_cast<std::int64_t>(data_->size_bytes());
  if (type_ == ElementType::float32 && actual == 8 * tokens && tokens > 0) {
    type_ = ElementType::float64_code7;
  }
  const std::int64_t width = element_bytes(type_);
  std::int64_t expected = 0;
  for (std::int64_t i = 0; i < sequences_; ++i) {
    if (pointer(i) != expected) {
      const std::int64_t found = pointer(i);
      const char* why = found < 0            ? "is negative"
                        : found > actual     ? "lies behind the end of the .bin"
                        : found % width != 0 ? "is not a multiple of the element size"
                                             : "is not the running sum of the sizes";
      fail_io(path, "the pointer of sequence " + number(i) + " " + why + ": found " + number(found) + ", expected " +
                        number(expected) + " (.bin: " + number(actual) + " bytes)");
    }
    expected += width * size(i);
  }
  check_data_length();
}

void IndexedFile::check_data_length() {
  const auto actual = static_cast<std::int64_t>(data_->size_bytes());
  const std::int64_t width = element_bytes(type_);
  const std::int64_t expected = width * tokens_;
  const std::string& data_path = data_->path();
  const std::string promise = "the index promises " + number(tokens_) + " tokens of " + number(width) + " bytes, so " +
                              number(expected) + " bytes, found " + number(actual);
  if (actual < expected) {
    fail_io(data_path, "is too short: " + promise + "; the copy or the preprocessing run did not finish");
  }
  if (actual > expected) {
    warnings_.push_back(data_path + ": has stray bytes at its end, which are not read: " + promise);
  }
}

std::string IndexedFile::stamp_text() const {
  return "espalier pair check 1\nindex = " + index_->identity() +
         "\ndata bytes = " + number(std::uint64_t{data_->size_bytes()}) + "\n";
}

bool IndexedFile::take_from_stamp(const std::string& path) {
  std::string ignored;
  const auto text = read_sealed_text(path, ignored);
  const std::string same = stamp_text();
  if (!text || !text->starts_with(same)) {
    return false;
  }
  unsigned type = 0;
  unsigned long long fingerprint = 0;
  long long tokens = 0;
  if (std::sscanf(text->c_str() + same.size(), "type = %u\ntokens = %lld\nfingerprint = %llx", &type, &tokens,
                  &fingerprint) != 3) {
    return false;
  }
  type_ = static_cast<ElementType>(type);
  tokens_ = tokens;
  fingerprint_ = fingerprint;
  read_whole_ = false;
  return true;
}

bool IndexedFile::write_stamp(const std::string& path) const {
  constexpr std::int64_t kSettled = 2;  // seconds; the times of some file systems are no finer
  if (std::time(nullptr) - index_->changed_seconds() < kSettled) {
    return false;
  }
  const std::string text =
      sealed(stamp_text() + "type = " + std::to_string(static_cast<unsigned>(type_)) + "\ntokens = " + number(tokens_) +
             "\nfingerprint = " + hexadecimal(fingerprint_) + "\n");
  OutputFile file(path);
  file.write(text.data(), text.size());
  file.sync();
  file.rename_into_place();
  return true;
}

const char* unit_of(const IndexedFile& file) {
  return file.documents() == file.sequences() ? "documents" : "sequences";
}

std::int64_t IndexedFile::tokens_in(std::int64_t begin, std::int64_t end) const {
  std::int64_t sum = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    sum += size(i);
  }
  return sum;
}

const std::byte* IndexedFile::range(std::int64_t i, std::int64_t offset, std::int64_t count) const {
  if (i < 0 || i >= sequences_) {
    fail_io(prefix_, "has no sequence " + number(i) + ": there are " + number(sequences_));
  }
  if (offset < 0 || count < 0 || offset > size(i) || count > size(i) - offset) {
    fail_io(prefix_, "tokens " + number(offset) + " to " + number(offset + count) + " of sequence " + number(i) +
                         " do not exist: it has " + number(std::int64_t{size(i)}));
  }
  return data_->data() + pointer(i) + offset * element_bytes(type_);
}

TokenView IndexedFile::view(std::int64_t i) const {
  const std::byte* data = range(i, 0, 0);
  return {data_, data, size(i), type_};
}

namespace {

template <typename From, typename To>
void widen(const std::byte* source, std::span<To> target) {
  for (std::size_t k = 0; k < target.size(); ++k) {
    From value;
    std::memcpy(&value, source + k * sizeof(From), sizeof(From));
    target[k] = static_cast<To>(value);
  }
}

}  // namespace

template <typename To>
void IndexedFile::read_as(std::int64_t i, std::int64_t offset, std::span<To> target) const {
  const std::byte* source = range(i, offset, static_cast<std::int64_t>(target.size()));
  switch (type_) {
    case ElementType::uint8:
      return widen<std::uint8_t>(source, target);
    case ElementType::int8:
      return widen<std::int8_t>(source, target);
    case ElementType::int16:
      return widen<std::int16_t>(source, target);
    case ElementType::int32:
      return widen<std::int32_t>(source, target);
    case ElementType::uint16:
      return widen<std::uint16_t>(source, target);
    case ElementType::int64:
      if constexpr (sizeof(To) == 4) {
        for (std::size_t k = 0; k < target.size(); ++k) {
          const auto value = load<std::int64_t>(source, static_cast<std::int64_t>(k));
          if (value != static_cast<std::int32_t>(value)) {
            fail_io(data_->path(), "token " + number(offset + static_cast<std::int64_t>(k)) + " of sequence " +
                                       number(i) + " is " + number(value) + ", which does not fit 32 bits");
          }
          target[k] = static_cast<To>(value);
        }
        return;
      } else {
        return widen<std::int64_t>(source, target);
      }
    case ElementType::float32:
    case ElementType::float64:
    case ElementType::float64_code7:
      if constexpr (std::is_floating_point_v<To>) {
        return type_ == ElementType::float32 ? widen<float>(source, target) : widen<double>(source, target);
      } else {
        fail_io(data_->path(), "holds " + std::string(type_name(type_)) + " values, not tokens");
      }
  }
}

void IndexedFile::read(std::int64_t i, std::int64_t offset, std::span<std::int32_t> target) const {
  read_as(i, offset, target);
}

void IndexedFile::read(std::int64_t i, std::int64_t offset, std::span<std::int64_t> target) const {
  read_as(i, offset, target);
}

void IndexedFile::read(std::int64_t i, std::int64_t offset, std::span<double> target) const {
  read_as(i, offset, target);
}

}  // namespace espalier::data_indexed
