#pragma once

#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "espalier/config.hpp"
#include "espalier/dataset.hpp"
#include "espalier/host.hpp"
#include "espalier/tokenizer.hpp"

namespace espalier::app {

inline constexpr std::string_view kCompletionsDataset = "completions";

inline constexpr OptionSpec kCompletionsSet[] = {
    {"name", OptionType::string, "\"\"", "what the log calls the set; default: the file's name without its ending"},
    {"path", OptionType::string, nullptr, "JSONL file of pairs"},
};
inline constexpr OptionSpec kCompletionsOptions[] = {
    {"train", OptionType::strings, nullptr, "JSONL files of pairs, an object a line; read whole at the start"},
    {"valid", OptionType::tables, "[]", "validation sets: [{name = \"held\", path = \"held.jsonl\"}]",
     -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), nullptr, kCompletionsSet,
     std::size(kCompletionsSet)},
    {"prompt_key", OptionType::string, "\"prompt\"", "where an object has the text that is given"},
    {"completion_key", OptionType::string, "\"completion\"", "where it has the text that is learned"},
    {"too_long", OptionType::string, "\"stop\"",
     "a pair with more tokens than a sample has: stop with its line, leave it out, or cut the start of its prompt",
     -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), "stop|skip|cut"},
    {"pack", OptionType::boolean, "false",
     "as many whole pairs in a sample as fit, one after another; else one, and padding"},
};

/// Pairs of a prompt and a completion, for fine-tuning: a sample is prompt, completion and the end-of-document id, and
/// only the tokens of the completion and that id count in the loss. Prompt and completion are encoded each by itself,
/// so that generation, which encodes the prompt alone, meets what was learned. Every epoch has an order of its own,
/// which follows from the seed; validation sets keep that of their file.
class CompletionsDataset final : public Dataset {
 public:
  struct Settings {
    struct Set {
      std::string name, path;
    };
    std::vector<std::string> train;
    std::vector<Set> valid;
    std::string prompt_key = "prompt", completion_key = "completion";
    enum class TooLong : std::uint8_t { stop, skip, cut } too_long = TooLong::stop;
    bool pack = false;
    std::int64_t seq = 0;            ///< tokens a sample predicts
    std::int64_t train_samples = 0;  ///< of the run: the pairs are repeated as often as it takes
    std::uint64_t seed = 0;
  };
  /// @throws IoError naming file and line.
  CompletionsDataset(const Settings& settings, const Tokenizer& tokenizer);
  ~CompletionsDataset() override;

  std::span<const SampleSet> sets() const override { return sets_; }
  std::int64_t sample_tokens() const override { return settings_.seq + 1; }
  void read(int set, std::int64_t index, std::span<std::int32_t> tokens,
            std::span<std::uint8_t> loss_mask) const override;
  /// The file and the number of the sample's first pair in it, from 0.
  SampleOrigin origin(int set, std::int64_t index) const override;
  std::uint64_t fingerprint() const override { return fingerprint_; }

  /// A line a set for the log: pairs, tokens, epochs.
  std::vector<std::string> summary() const;

 private:
  struct Pairs;
  void add_pair(Pairs& set, const std::string& line, const std::string& where, std::int64_t ordinal,
                const Tokenizer& tokenizer);
  void make_samples(Pairs& set) const;
  void add_set(const std::vector<std::string>& files, const Tokenizer& tokenizer);
  std::int64_t sample_of(int set, std::int64_t index) const;

  Settings settings_;
  std::vector<SampleSet> sets_;
  std::vector<std::unique_ptr<Pairs>> pairs_;  ///< of each set
  std::int32_t padding_ = 0;
  std::uint64_t fingerprint_ = 0;
};

/// Options of a built-in dataset by its name; none for a name that has none.
std::span<const OptionSpec> dataset_options(std::string_view name);

/// Factory of the built-in plugin. @throws ConfigError, IoError.
std::unique_ptr<Dataset> make_completions_dataset(const ConfigView& config, HostContext& host,
                                                  const Tokenizer* tokenizer);

}  // namespace espalier::app
