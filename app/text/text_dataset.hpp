#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/dataset.hpp"
#include "espalier/tokenizer.hpp"
#include "text/documents.hpp"

namespace espalier::app {

/// Text files as validation sets, one a file, held in memory: documents with their end-of-document ids in one row, cut
/// into samples that share one token with the next. The last sample is padded, the padding masked: every token but the
/// very first is a target once.
class TextDataset final : public Dataset {
 public:
  /// @throws IoError naming file and line, as preprocess does.
  TextDataset(const std::vector<std::string>& files, const DocumentRules& rules, const Tokenizer& tokenizer,
              std::int64_t seq);

  std::span<const SampleSet> sets() const override { return sets_; }
  std::int64_t sample_tokens() const override { return seq_ + 1; }
  void read(int set, std::int64_t index, std::span<std::int32_t> tokens,
            std::span<std::uint8_t> loss_mask) const override;
  SampleOrigin origin(int set, std::int64_t index) const override;
  std::uint64_t fingerprint() const override;

 private:
  std::int64_t seq_;
  std::vector<SampleSet> sets_;
  std::vector<std::vector<std::int32_t>> tokens_;
};

}  // namespace espalier::app
