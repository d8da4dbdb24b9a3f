#include "index_writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <limits>

#include "fail.hpp"

namespace espalier::data_indexed {
namespace {

/// Also makes room: an earlier run that was killed while it wrote may have left a copy of all its tokens.
std::string checked_prefix(const std::string& prefix) {
  for (const std::string_view extension : {".bin", ".idx"}) {
    if (prefix.empty() || (prefix.size() >= 4 && prefix.compare(prefix.size() - 4, 4, extension) == 0)) {
      fail_config("output", "\"" + prefix + "\" is not a prefix: give the path without \".bin\" and \".idx\"");
    }
  }
  remove_abandoned_files(std::filesystem::path(prefix).parent_path().string());
  return prefix;
}

constexpr std::size_t kBlock = 4096;  // elements converted at a time, on the stack

template <typename To, typename From>
void write_converted(OutputFile& file, std::span<const From> values) {
  std::array<To, kBlock> block;
  for (std::size_t at = 0; at < values.size(); at += kBlock) {
    const std::size_t count = std::min(kBlock, values.size() - at);
    for (std::size_t k = 0; k < count; ++k) {
      block[k] = static_cast<To>(values[at + k]);
    }
    file.write(block.data(), count * sizeof(To));
  }
}

}  // namespace

IndexWriter::IndexWriter(const std::string& prefix, ElementType type, std::int64_t token_limit)
    : prefix_(checked_prefix(prefix)),
      type_(type),
      smallest_(smallest_token(type)),
      largest_(largest_token(type)),
      data_(prefix + ".bin"),
      index_(prefix + ".idx") {
  if (token_limit > 0) {
    if (token_limit - 1 > largest_ && is_integer(type)) {
      fail_config(prefix, "a vocabulary of " + std::to_string(token_limit) + " does not fit " +
                              std::string(type_name(type)) + " (largest id " + std::to_string(largest_) +
                              "); use int32");
    }
    smallest_ = 0;
    largest_ = token_limit - 1;
  }
}

template <typename From>
void IndexWriter::check_tokens(std::span<const From> tokens) const {
  const auto outside = [this](From token) {
    return static_cast<std::int64_t>(token) < smallest_ || static_cast<std::int64_t>(token) > largest_;
  };
  const auto bad = std::find_if(tokens.begin(), tokens.end(), outside);
  if (bad != tokens.end()) {
    fail_io(prefix_ + ".bin", "token id " + std::to_string(*bad) + " at position " +
                                  std::to_string(bad - tokens.begin()) + " of sequence " + std::to_string(sequences()) +
                                  " (document " + std::to_string(documents()) + ") is outside " +
                                  std::to_string(smallest_) + " to " + std::to_string(largest_) + " (" +
                                  std::string(type_name(type_)) +
                                  " tokens); nothing is wrapped: use a wider type or the " + "right vocabulary size");
  }
}

template <typename From>
void IndexWriter::add(std::span<const From> tokens) {
  if (tokens.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    fail_config(prefix_, "sequence " + std::to_string(sequences()) + " has " + std::to_string(tokens.size()) +
                             " tokens; the format allows 2147483647");
  }
  if constexpr (!std::is_floating_point_v<From>) {
    if (is_integer(type_)) {
      check_tokens(tokens);
    }
  } else if (is_integer(type_)) {
    fail_config(prefix_, "floats cannot be written as " + std::string(type_name(type_)));
  }
  switch (type_) {
    case ElementType::uint8:
      write_converted<std::uint8_t>(data_, tokens);
      break;
    case ElementType::int8:
      write_converted<std::int8_t>(data_, tokens);
      break;
    case ElementType::int16:
      write_converted<std::int16_t>(data_, tokens);
      break;
    case ElementType::uint16:
      write_converted<std::uint16_t>(data_, tokens);
      break;
    case ElementType::int32:
      write_converted<std::int32_t>(data_, tokens);
      break;
    case ElementType::int64:
      write_converted<std::int64_t>(data_, tokens);
      break;
    case ElementType::float32:
      write_converted<float>(data_, tokens);
      break;
    case ElementType::float64:
    case ElementType::float64_code7:
      write_converted<double>(data_, tokens);
      break;
  }
  sizes_.push_back(static_cast<std::int32_t>(tokens.size()));
  tokens_ += static_cast<std::int64_t>(tokens.size());
}

void IndexWriter::add_sequence(std::span<const std::int32_t> tokens) { add(tokens); }

void IndexWriter::add_sequence(std::span<const std::int64_t> tokens) { add(tokens); }

void IndexWriter::add_sequence(std::span<const double> values) { add(values); }

void IndexWriter::end_document() { documents_.push_back(sequences()); }

void IndexWriter::set_mode(std::int8_t mode) {
  ESPALIER_ASSERT(!sizes_.empty());
  modes_.resize(sizes_.size(), 0);
  modes_.back() = mode;
  ++moded_;
}

void IndexWriter::append(const IndexedFile& part, bool join_open_document) {
  if (part.type() != type_) {
    fail_config(part.prefix(), "holds " + std::string(type_name(part.type())) + " and cannot be appended to " +
                                   prefix_ + " of " + std::string(type_name(type_)) + "; preprocess one of them again");
  }
  if (part.document_begin(part.documents()) != part.sequences() && !join_open_document) {
    fail_config(part.prefix(), "its last document was never closed and would run into the next part; write it again");
  }
  if (sequences() > 0 && part.sequences() > 0 && part.has_modes() != (moded_ > 0)) {
    fail_config(part.prefix(), std::string(part.has_modes() ? "has" : "lacks") +
                                   " modes (a multimodal dataset), which the parts before it " +
                                   (part.has_modes() ? "lack" : "have") + "; the result would mean nothing");
  }
  data_.append_file(part.prefix() + ".bin", part.tokens() * element_bytes(type_));
  const std::int64_t shift = sequences();
  for (std::int64_t i = 0; i < part.sequences(); ++i) {
    sizes_.push_back(part.size(i));
    if (part.has_modes()) {
      set_mode(part.mode(i));
    }
  }
  for (std::int64_t k = 1; k <= part.documents(); ++k) {
    documents_.push_back(shift + part.document_begin(k));
  }
  tokens_ += part.tokens();
}

void IndexWriter::write_index() {
  const auto put = [this](auto value) { index_.write(&value, sizeof value); };
  index_.write(kIndexMagic, sizeof kIndexMagic);
  put(kIndexVersion);
  put(type_code(type_));
  put(static_cast<std::uint64_t>(sizes_.size()));
  put(static_cast<std::uint64_t>(documents_.size()));
  index_.write(sizes_.data(), sizes_.size() * sizeof(std::int32_t));
  const std::int64_t width = element_bytes(type_);
  std::array<std::int64_t, kBlock> pointers;
  std::int64_t pointer = 0;
  for (std::size_t at = 0; at < sizes_.size(); at += kBlock) {
    const std::size_t count = std::min(kBlock, sizes_.size() - at);
    for (std::size_t k = 0; k < count; ++k) {
      pointers[k] = pointer;
      pointer += width * sizes_[at + k];
    }
    index_.write(pointers.data(), count * sizeof pointer);
  }
  index_.write(documents_.data(), documents_.size() * sizeof(std::int64_t));
  index_.write(modes_.data(), modes_.size());
}

void IndexWriter::finish(bool leave_open) {
  if (documents_.back() != sequences() && !leave_open) {
    fail_config(prefix_, "the last document was never ended");
  }
  if (moded_ != 0 && moded_ != sequences()) {
    fail_config(prefix_,
                "only " + std::to_string(moded_) + " of " + std::to_string(sequences()) + " sequences have a mode");
  }
  write_index();
  data_.sync();
  index_.sync();
  if (::unlink(index_.path().c_str()) != 0 && errno != ENOENT) {  // an old index must never meet the new data
    fail_io(index_.path(), "cannot be replaced", errno);
  }
  data_.rename_into_place();
  index_.rename_into_place();
  sync_folder_of(index_.path());
}

void IndexWriter::discard() noexcept {
  data_.discard();
  index_.discard();
}

}  // namespace espalier::data_indexed
