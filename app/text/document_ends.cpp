#include "text/document_ends.hpp"

namespace espalier::app {
namespace {

class WithoutDocumentStarts final : public Dataset {
 public:
  WithoutDocumentStarts(const Dataset& dataset, std::int32_t end) : dataset_(dataset), end_(end) {}

  std::span<const SampleSet> sets() const override { return dataset_.sets(); }
  std::int64_t sample_tokens() const override { return dataset_.sample_tokens(); }
  void read(int set, std::int64_t index, std::span<std::int32_t> tokens,
            std::span<std::uint8_t> loss_mask) const override {
    dataset_.read(set, index, tokens, loss_mask);
    for (std::size_t i = 0; i < loss_mask.size(); ++i) {
      if (tokens[i] == end_) loss_mask[i] = 0;
    }
  }
  SampleOrigin origin(int set, std::int64_t index) const override { return dataset_.origin(set, index); }
  std::uint64_t fingerprint() const override { return dataset_.fingerprint(); }
  bool continues(std::uint64_t fingerprint, std::int64_t samples) const override {
    return dataset_.continues(fingerprint, samples);
  }

 private:
  const Dataset& dataset_;
  std::int32_t end_;
};

}  // namespace

std::unique_ptr<Dataset> without_document_starts(const Dataset& dataset, std::int32_t end_of_document) {
  return std::make_unique<WithoutDocumentStarts>(dataset, end_of_document);
}

}  // namespace espalier::app
