#include "text/synthetic_dataset.hpp"

#include <algorithm>
#include <array>

#include "espalier/random.hpp"

namespace espalier::app {
namespace {

constexpr int kSymbols = 64;
constexpr int kSuccessors = 4;

class SyntheticDataset final : public Dataset {
 public:
  explicit SyntheticDataset(const RunFacts& facts)
      : seed_(facts.seed),
        tokens_(facts.model.seq_length + 1),
        symbols_(static_cast<std::uint32_t>(std::min<std::int64_t>(kSymbols, facts.model.tokenizer_vocab))),
        first_id_(facts.model.tokenizer_vocab >= 96 ? 32 : 0) {
    constexpr std::int64_t kEvalSamples = 64;
    sets_[0] = {"train", Split::train, facts.batch.train_samples};
    sets_[1] = {"valid", Split::valid, facts.batch.eval_samples > 0 ? facts.batch.eval_samples : kEvalSamples};
    const PhiloxKey key = make_key(seed_, RandomUse::synthetic_data, 0);
    for (std::uint32_t i = 0; i < kSymbols; ++i) {
      const PhiloxCounter draw = philox(key, {i, 0, 0, 0});
      for (std::size_t k = 0; k < kSuccessors; ++k) successors_[i][k] = draw[k] % symbols_;
    }
  }

  std::span<const SampleSet> sets() const override { return sets_; }
  std::int64_t sample_tokens() const override { return tokens_; }

  void read(int set, std::int64_t index, std::span<std::int32_t> tokens, std::span<std::uint8_t>) const override {
    const PhiloxKey key = make_key(seed_, RandomUse::synthetic_data, static_cast<std::uint64_t>(set) + 1);
    std::uint32_t symbol = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const PhiloxCounter draw = philox(key, {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(index),
                                              static_cast<std::uint32_t>(index >> 32), 0});
      if (i == 0 || draw[0] % 16 == 0) {
        symbol = draw[1] % symbols_;  // a fresh start now and then keeps the entropy above zero
      } else {
        constexpr std::array<std::uint8_t, 8> kChoice = {0, 0, 0, 0, 1, 1, 2, 3};  // likelihoods 4 : 2 : 1 : 1
        symbol = successors_[symbol][kChoice[draw[2] % 8]];
      }
      tokens[i] = static_cast<std::int32_t>(symbol) + first_id_;
    }
  }

  SampleOrigin origin(int set, std::int64_t index) const override { return {"synthetic:" + sets_[static_cast<std::size_t>(set)].name, index}; }

  std::uint64_t fingerprint() const override {
    const PhiloxKey key = make_key(seed_ + static_cast<std::uint64_t>(tokens_), RandomUse::synthetic_data, symbols_);
    return (std::uint64_t{key[1]} << 32) | key[0];
  }

 private:
  std::uint64_t seed_;
  std::int64_t tokens_;
  std::uint32_t symbols_;
  std::int32_t first_id_;
  std::array<SampleSet, 2> sets_;
  std::array<std::array<std::uint32_t, kSuccessors>, kSymbols> successors_{};
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic_dataset(const RunFacts& facts) { return std::make_unique<SyntheticDataset>(facts); }

}  // namespace espalier::app
