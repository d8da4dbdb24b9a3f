#include "block_check.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "fail.hpp"

namespace espalier::data_indexed {
namespace {

constexpr std::string_view kFirstLine = "espalier array check 1\n";
constexpr std::string_view kEnd = "end xxh3 = ";

std::string_view next_line(std::string_view& text) {
  const auto end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

template <typename T>
bool parse(std::string_view text, T& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

std::optional<std::string_view> value_of(std::string_view line, std::string_view key) {
  if (line.size() > key.size() + 3 && line.starts_with(key) && line.substr(key.size(), 3) == " = ") {
    return line.substr(key.size() + 3);
  }
  return std::nullopt;
}

}  // namespace

std::string hexadecimal(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::optional<std::string> read_sealed_text(const std::string& path, std::string& why) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    why = path + ": is not a regular file";
    return std::nullopt;
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    why = "there is no " + path;
    return std::nullopt;
  }
  std::ostringstream whole;
  whole << stream.rdbuf();
  std::string text = whole.str();
  const auto end = text.rfind(kEnd);
  if (end == std::string::npos ||
      text.substr(end) != std::string(kEnd) + hexadecimal(checksum(text.data(), end)) + "\n") {
    why = path + ": is cut or was changed";
    return std::nullopt;
  }
  text.resize(end);
  return text;
}

std::string sealed(std::string text) {
  const std::uint64_t sum = checksum(text.data(), text.size());
  return std::move(text) + std::string(kEnd) + hexadecimal(sum) + "\n";
}

void BlockHasher::add(const void* data, std::size_t bytes) {
  const auto* source = static_cast<const std::byte*>(data);
  bytes_ += static_cast<std::int64_t>(bytes);
  while (bytes > 0) {
    const std::size_t count = std::min(bytes, kCheckBlock - filled_);
    block_.add_bytes(source, count);
    filled_ += count;
    source += count;
    bytes -= count;
    if (filled_ == kCheckBlock) {
      hashes_.push_back(block_.value());
      block_.reset();
      filled_ = 0;
    }
  }
}

std::vector<std::uint64_t> BlockHasher::finish() {
  if (filled_ > 0) {
    hashes_.push_back(block_.value());
  }
  return std::move(hashes_);
}

std::string BlockCheck::to_text() const {
  std::string text(kFirstLine);
  text += settings;
  text += "bytes = " + std::to_string(bytes) + "\nblocks = " + std::to_string(blocks.size()) + "\n";
  for (const std::uint64_t hash : blocks) {
    text += hexadecimal(hash) + "\n";
  }
  return sealed(std::move(text));
}

std::optional<BlockCheck> BlockCheck::read(const std::string& path, std::string& why) {
  const auto text = read_sealed_text(path, why);
  if (!text) {
    return std::nullopt;
  }
  std::string_view rest = *text;
  BlockCheck check;
  std::size_t blocks = 0;
  bool sound = rest.starts_with(kFirstLine);
  rest.remove_prefix(sound ? kFirstLine.size() : 0);
  while (sound) {
    const std::string_view line = next_line(rest);
    if (const auto bytes = value_of(line, "bytes")) {
      sound = parse(*bytes, check.bytes) && check.bytes >= 0;
    } else if (const auto count = value_of(line, "blocks")) {
      sound = parse(*count, blocks);
      break;
    } else {
      sound = !line.empty();
      check.settings += std::string(line) + "\n";
    }
  }
  while (sound && !rest.empty()) {
    std::uint64_t hash = 0;
    sound = parse(next_line(rest), hash, 16);
    check.blocks.push_back(hash);
  }
  const auto expected = (static_cast<std::uint64_t>(check.bytes) + kCheckBlock - 1) / kCheckBlock;
  if (!sound || check.blocks.size() != blocks || blocks != expected) {
    why = path + ": is not a check file of this version";
    return std::nullopt;
  }
  return check;
}

std::string BlockCheck::setting(std::string_view key) const {
  std::string_view rest = settings;
  while (!rest.empty()) {
    if (const auto value = value_of(next_line(rest), key)) {
      return std::string(*value);
    }
  }
  return {};
}

CheckedFile::CheckedFile(std::shared_ptr<const MappedFile> mapping, BlockCheck check, std::string check_path)
    : mapping_(std::move(mapping)),
      check_(std::move(check)),
      check_path_(std::move(check_path)),
      good_(std::make_unique<std::atomic<bool>[]>(check_.blocks.size())) {
  ESPALIER_ASSERT(static_cast<std::int64_t>(mapping_->size_bytes()) == check_.bytes);
}

void CheckedFile::check_block(std::size_t block) const {
  const std::size_t begin = block * kCheckBlock;
  const std::size_t bytes = std::min(kCheckBlock, mapping_->size_bytes() - begin);
  mapping_->fetch(begin, bytes);
  if (checksum(mapping_->data() + begin, bytes) != check_.blocks[block]) {
    const bool removed = ::unlink(check_path_.c_str()) == 0;
    fail_io(mapping_->path(),
            "bytes " + std::to_string(begin) + " to " + std::to_string(begin + bytes) +
                " are not what was written (their checksum differs): the file was damaged after it was built; " +
                (removed ? "its check file is removed, so that the next start builds it anew"
                         : "remove " + check_path_ + ", and the next start builds it anew"));
  }
  good_[block].store(true, std::memory_order_relaxed);
}

void CheckedFile::check_all() const {
  for (std::size_t block = 0; block < check_.blocks.size(); ++block) {
    check_block(block);
  }
}

}  // namespace espalier::data_indexed
