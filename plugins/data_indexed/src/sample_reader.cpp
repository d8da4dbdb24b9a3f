#include "sample_reader.hpp"

#include <algorithm>
#include <string>

#include "fail.hpp"

namespace espalier::data_indexed {

SampleReader::SampleReader(const IndexedFile& file, IndexArrays arrays, std::int64_t token_limit, std::int32_t pad_id)
    : file_(&file), arrays_(std::move(arrays)), token_limit_(token_limit), pad_id_(pad_id) {}

template <typename Visit>
std::int64_t SampleReader::walk(std::int64_t index, const Visit& visit) const {
  if (index < 0 || index >= samples()) {
    fail_io(file_->prefix(),
            "there is no sample " + std::to_string(index) + ": there are " + std::to_string(samples()));
  }
  const EpochPlan& plan = arrays_.plan();
  const std::int64_t length = plan.sample_tokens();
  IndexArrays::Place place = arrays_.place(arrays_.shuffled(index));
  std::int64_t walked = 0;
  while (walked < length) {
    if (place.position == arrays_.document_entries() && plan.rules.keep_partial) {
      break;
    }
    if (place.position < 0 || place.position >= arrays_.document_entries()) {
      fail_io(file_->prefix(), "sample " + std::to_string(index) +
                                   " leaves the document index; delete the cached index files beside the data");
    }
    const std::int64_t sequence = arrays_.sequence(place.position);
    const std::int64_t available = file_->size(sequence) - place.offset;
    const std::int64_t count = std::max<std::int64_t>(std::min(available, length - walked), 0);
    visit(sequence, place.offset, count, walked);
    walked += count;
    ++place.position;
    place.offset = 0;
  }
  return walked;
}

std::vector<SamplePiece> SampleReader::pieces(std::int64_t index) const {
  std::vector<SamplePiece> result;
  walk(index, [&](std::int64_t sequence, std::int64_t offset, std::int64_t count, std::int64_t) {
    result.push_back({sequence, offset, count});
  });
  return result;
}

void SampleReader::read(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::uint8_t> loss_mask) const {
  const std::int64_t length = arrays_.plan().seq_length + 1;
  if (static_cast<std::int64_t>(tokens.size()) != length) {
    fail_io(file_->prefix(),
            "a sample has " + std::to_string(length) + " tokens, not " + std::to_string(tokens.size()));
  }
  const auto part = [](auto span, std::int64_t first, std::int64_t count) {
    return span.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  };
  const std::int64_t there =
      walk(index, [&](std::int64_t sequence, std::int64_t offset, std::int64_t count, std::int64_t so_far) {
        file_->read(sequence, offset, part(tokens, so_far, count));
      });
  if (token_limit_ > 0) {
    const auto limit = static_cast<std::uint32_t>(token_limit_);
    std::uint32_t bad = 0;  // no early exit, so that the loop vectorizes
    for (const std::int32_t token : part(tokens, 0, there)) {
      bad |= static_cast<std::uint32_t>(static_cast<std::uint32_t>(token) >= limit);
    }
    if (bad != 0) {
      fail_token(index, part(tokens, 0, there));
    }
  }
  if (there == length && pad_id_ < 0) {
    return;
  }
  std::fill(tokens.begin() + there, tokens.end(), 0);
  for (std::int64_t k = 0; k < length; ++k) {
    const auto at = static_cast<std::size_t>(k);
    if (k < there && (pad_id_ < 0 || tokens[at] != pad_id_)) {
      continue;
    }
    tokens[at] = 0;
    if (k > 0 && !loss_mask.empty()) {
      loss_mask[at - 1] = 0;
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
