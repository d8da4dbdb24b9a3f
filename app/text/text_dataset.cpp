#include "text/text_dataset.hpp"

#include <algorithm>
#include <filesystem>

#include "espalier/error.hpp"

namespace espalier::app {

TextDataset::TextDataset(const std::vector<std::string>& files, const DocumentRules& rules, const Tokenizer& tokenizer,
                         std::int64_t seq)
    : seq_(seq) {
  check_inputs(files);
  for (const std::string& file : files) {
    std::vector<std::int32_t>& ids = tokens_.emplace_back();
    ReadCounts counts;
    const DocumentSink sink = [&](std::string_view text, std::string_view) {
      if (text.empty()) return;
      tokenizer.encode(text, ids);
      if (tokenizer.end_of_document() >= 0) ids.push_back(tokenizer.end_of_document());
    };
    read_documents(file, rules, counts, sink, [](std::int64_t) {});
    if (ids.size() < 2) {
      throw IoError(std::filesystem::absolute(file).lexically_normal().string() +
                    ": no text in it that could be predicted");
    }
    const auto targets = static_cast<std::int64_t>(ids.size()) - 1;
    sets_.push_back({file, Split::valid, (targets + seq_ - 1) / seq_});
  }
}

void TextDataset::read(int set, std::int64_t index, std::span<std::int32_t> tokens,
                       std::span<std::uint8_t> loss_mask) const {
  const std::vector<std::int32_t>& ids = tokens_[static_cast<std::size_t>(set)];
  const auto first = static_cast<std::size_t>(index * seq_);
  const std::size_t count = std::min(tokens.size(), ids.size() - first);
  std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(first), count, tokens.begin());
  std::ranges::fill(tokens.subspan(count), ids.back());
  for (std::size_t target = count - 1; target < loss_mask.size(); ++target) loss_mask[target] = 0;
}

SampleOrigin TextDataset::origin(int set, std::int64_t index) const {
  return {sets_[static_cast<std::size_t>(set)].name, index};
}

std::uint64_t TextDataset::fingerprint() const {
  // FNV-1a: read by nobody but a comparison of two such datasets.
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const auto& ids : tokens_) {
    for (const std::int32_t id : ids) hash = (hash ^ static_cast<std::uint32_t>(id)) * 0x100000001B3u;
  }
  return hash;
}

}  // namespace espalier::app
