#include "sample_reader.hpp"

#include <algorithm>
#include <string>

#include "fail.hpp"

namespace espalier::data_indexed {

SampleReader::SampleReader(const IndexedFile& file, IndexArrays arrays, std::int64_t token_limit)
    : file_(&file), arrays_(std::move(arrays)), token_limit_(token_limit) {}

void SampleReader::read(std::int64_t index, std::span<std::int32_t> tokens) const {
  const std::int64_t length = arrays_.plan().seq_length + 1;
  if (index < 0 || index >= samples() || static_cast<std::int64_t>(tokens.size()) != length) {
    fail_io(file_->prefix(), "there is no sample " + std::to_string(index) + " of " + std::to_string(tokens.size()) +
                                 " tokens: there are " + std::to_string(samples()) + " of " + std::to_string(length));
  }
  IndexArrays::Place place = arrays_.place(arrays_.shuffled(index));
  std::int64_t written = 0;
  while (written < length) {
    if (place.position < 0 || place.position >= arrays_.document_entries()) {
      fail_io(file_->prefix(), "sample " + std::to_string(index) +
                                   " leaves the document index; delete the cached index files beside the data");
    }
    const std::int64_t sequence = arrays_.sequence(place.position);
    const std::int64_t available = file_->size(sequence) - place.offset;
    const std::int64_t count = std::min(available, length - written);
    file_->read(
        sequence, place.offset,
        tokens.subspan(static_cast<std::size_t>(written), static_cast<std::size_t>(std::max<std::int64_t>(count, 0))));
    written += count;
    ++place.position;
    place.offset = 0;
  }
  if (token_limit_ > 0) {
    const auto limit = static_cast<std::uint32_t>(token_limit_);
    std::uint32_t bad = 0;  // no early exit, so that the loop vectorizes
    for (const std::int32_t token : tokens) {
      bad |= static_cast<std::uint32_t>(static_cast<std::uint32_t>(token) >= limit);
    }
    if (bad != 0) {
      fail_token(index, tokens);
    }
  }
}

void SampleReader::fail_token(std::int64_t index, std::span<const std::int32_t> tokens) const {
  const auto outside = [this](std::int32_t token) { return token < 0 || token >= token_limit_; };
  const auto at = std::find_if(tokens.begin(), tokens.end(), outside);
  const std::int64_t row = arrays_.shuffled(index);
  const IndexArrays::Place place = arrays_.place(row);
  fail_io(file_->prefix() + ".bin",
          "token " + std::to_string(at - tokens.begin()) + " of sample " + std::to_string(index) +
              " (it starts in sequence " + std::to_string(arrays_.sequence(place.position)) + " at token " +
              std::to_string(place.offset) + ") is " + std::to_string(*at) + ", but the tokenizer has ids 0 to " +
              std::to_string(token_limit_ - 1) + "; the data were made with another tokenizer");
}

}  // namespace espalier::data_indexed
