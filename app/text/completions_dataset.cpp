#include "text/completions_dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>

#include "espalier/error.hpp"
#include "espalier/random.hpp"
#include "text/json_text.hpp"
#include "text/utf8.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;

std::string full_path(const std::string& file) { return fs::absolute(file).lexically_normal().string(); }

std::string read_field(const std::string& line, const std::string& key, const std::string& where) {
  std::string text;
  const TextField field = read_text_field(line, key, false, text);
  if (field.fault == LineFault::none) return text;
  throw IoError(
      fmt::format("{}: {}; every line is an object with a prompt and a completion", where, describe(field.fault, key)));
}

}  // namespace

/// Tokens of all pairs of a set, one after another, and how they make samples.
struct CompletionsDataset::Pairs {
  struct Pair {
    std::int64_t begin = 0;   ///< in tokens
    std::int64_t prompt = 0;  ///< tokens that are given
    std::int64_t count = 0;   ///< tokens in all
    std::int32_t file = 0;
    std::int64_t number = 0;  ///< in its file
  };
  std::vector<std::string> files;
  std::vector<std::int32_t> tokens;
  std::vector<Pair> pairs;
  std::vector<std::int64_t> first;  ///< pair each sample starts with, and at the end the number of pairs
  std::int64_t skipped = 0, cut = 0;

  std::int64_t samples() const { return std::ssize(first) - 1; }

  // The order of the epoch that was asked for last: samples are read in order, so it is made once an epoch.
  mutable std::mutex mutex;
  mutable std::int64_t epoch = -1;
  mutable std::vector<std::int32_t> order;
};

CompletionsDataset::CompletionsDataset(const Settings& settings, const Tokenizer& tokenizer) : settings_(settings) {
  padding_ = std::max(tokenizer.end_of_document(), 0);
  add_set(settings_.train, tokenizer);
  sets_.push_back({"train", Split::train, settings_.train_samples});
  for (const Settings::Set& set : settings_.valid) {
    add_set({set.path}, tokenizer);
    sets_.push_back(
        {set.name.empty() ? fs::path(set.path).stem().string() : set.name, Split::valid, pairs_.back()->samples()});
  }
  // FNV-1a over all that decides what the samples are.
  std::uint64_t hash = 0xCBF29CE484222325u;
  const auto add = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001B3u; };
  add(settings_.seed);
  add(static_cast<std::uint64_t>(settings_.seq));
  for (const auto& set : pairs_) {
    for (const std::int32_t id : set->tokens) add(static_cast<std::uint32_t>(id));
    for (const Pairs::Pair& pair : set->pairs) add(static_cast<std::uint64_t>(pair.begin + pair.prompt));
    for (const std::int64_t pair : set->first) add(static_cast<std::uint64_t>(pair));
  }
  fingerprint_ = hash;
}

CompletionsDataset::~CompletionsDataset() = default;

void CompletionsDataset::add_set(const std::vector<std::string>& files, const Tokenizer& tokenizer) {
  auto set = std::make_unique<Pairs>();
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    std::error_code error;
    if (!in || fs::is_directory(file, error)) throw IoError(full_path(file), "cannot open", in ? EISDIR : errno);
    std::string line;
    std::int64_t ordinal = 0;
    for (std::int64_t number = 1; std::getline(in, line); ++number) {
      if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      add_pair(*set, line, fmt::format("{}:{}", full_path(file), number), ordinal++, tokenizer);
    }
    if (in.bad()) throw IoError(full_path(file), "cannot read", errno);
    if (ordinal == 0) throw IoError(full_path(file) + ": has no pair of prompt and completion");
    set->files.push_back(full_path(file));
  }
  if (set->pairs.empty())
    throw IoError(set->files.front() + ": every pair is longer than a sample (too_long = \"skip\")");
  make_samples(*set);
  pairs_.push_back(std::move(set));
}

void CompletionsDataset::add_pair(Pairs& set, const std::string& line, const std::string& where, std::int64_t ordinal,
                                  const Tokenizer& tokenizer) {
  if (find_invalid_utf8(line) != std::string::npos) throw IoError(where + ": is not UTF-8");
  std::vector<std::int32_t> prompt, completion;
  tokenizer.encode(read_field(line, settings_.prompt_key, where), prompt);
  tokenizer.encode(read_field(line, settings_.completion_key, where), completion);
  if (completion.empty()) throw IoError(where + ": has an empty completion: there is nothing to learn");
  const std::int32_t end = tokenizer.end_of_document();
  if (prompt.empty() && end >= 0) prompt.push_back(end);  // as generation starts a document
  if (end >= 0) completion.push_back(end);
  const std::int64_t most = settings_.seq + 1;
  const std::int64_t over = std::ssize(prompt) + std::ssize(completion) - most;
  if (over > 0) {
    if (settings_.too_long == Settings::TooLong::stop) {
      throw IoError(
          fmt::format("{}: has {} tokens, a sample {} (model.seq_length + 1); too_long = \"skip\" leaves such "
                      "pairs out, \"cut\" takes the start of the prompt away",
                      where, over + most, most));
    }
    if (settings_.too_long == Settings::TooLong::skip) {
      ++set.skipped;
      return;
    }
    // One token of the prompt stays, so that the first of the completion is predicted from something.
    const std::int64_t from_prompt = std::min<std::int64_t>(over, std::max<std::int64_t>(std::ssize(prompt) - 1, 0));
    prompt.erase(prompt.begin(), prompt.begin() + from_prompt);
    completion.resize(completion.size() - static_cast<std::size_t>(over - from_prompt));
    ++set.cut;
  }
  set.pairs.push_back({std::ssize(set.tokens), std::ssize(prompt), std::ssize(prompt) + std::ssize(completion),
                       static_cast<std::int32_t>(set.files.size()), ordinal});
  set.tokens.insert(set.tokens.end(), prompt.begin(), prompt.end());
  set.tokens.insert(set.tokens.end(), completion.begin(), completion.end());
}

void CompletionsDataset::make_samples(Pairs& set) const {
  const std::int64_t most = settings_.seq + 1;
  std::int64_t filled = most;
  for (std::size_t p = 0; p < set.pairs.size(); ++p) {
    const std::int64_t count = set.pairs[p].count;
    if (!settings_.pack || filled + count > most) {
      set.first.push_back(static_cast<std::int64_t>(p));
      filled = 0;
    }
    filled += count;
  }
  set.first.push_back(std::ssize(set.pairs));
}

std::int64_t CompletionsDataset::sample_of(int set, std::int64_t index) const {
  const Pairs& pairs = *pairs_[static_cast<std::size_t>(set)];
  if (set > 0) return index;
  const std::int64_t n = pairs.samples();
  const std::lock_guard lock(pairs.mutex);
  if (pairs.epoch != index / n) {
    pairs.epoch = index / n;
    pairs.order.resize(static_cast<std::size_t>(n));
    std::iota(pairs.order.begin(), pairs.order.end(), 0);
    const PhiloxKey key = make_key(settings_.seed, RandomUse::sampling, static_cast<std::uint64_t>(pairs.epoch));
    for (std::int64_t last = n - 1; last > 0; --last) {  // Fisher and Yates
      const PhiloxCounter draw =
          philox(key, {static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(last >> 32), 0, 0});
      const std::uint64_t number = (std::uint64_t{draw[1]} << 32) | draw[0];
      std::swap(pairs.order[static_cast<std::size_t>(last)],
                pairs.order[static_cast<std::size_t>(number % static_cast<std::uint64_t>(last + 1))]);
    }
  }
  return pairs.order[static_cast<std::size_t>(index % n)];
}

void CompletionsDataset::read(int set, std::int64_t index, std::span<std::int32_t> tokens,
                              std::span<std::uint8_t> loss_mask) const {
  const Pairs& pairs = *pairs_[static_cast<std::size_t>(set)];
  const auto sample = static_cast<std::size_t>(sample_of(set, index));
  std::ranges::fill(tokens, padding_);
  std::ranges::fill(loss_mask, std::uint8_t{0});
  std::int64_t at = 0;
  for (std::int64_t p = pairs.first[sample]; p < pairs.first[sample + 1]; ++p) {
    const Pairs::Pair& pair = pairs.pairs[static_cast<std::size_t>(p)];
    std::copy_n(pairs.tokens.begin() + pair.begin, pair.count, tokens.begin() + at);
    if (!loss_mask.empty()) {
      // Position i of the mask is that of the target tokens[i + 1].
      for (std::int64_t i = std::max<std::int64_t>(pair.prompt, 1); i < pair.count; ++i) {
        loss_mask[static_cast<std::size_t>(at + i - 1)] = 1;
      }
    }
    at += pair.count;
  }
}

SampleOrigin CompletionsDataset::origin(int set, std::int64_t index) const {
  const Pairs& pairs = *pairs_[static_cast<std::size_t>(set)];
  const auto first = static_cast<std::size_t>(pairs.first[static_cast<std::size_t>(sample_of(set, index))]);
  const Pairs::Pair& pair = pairs.pairs[first];
  return {pairs.files[static_cast<std::size_t>(pair.file)], pair.number};
}

std::vector<std::string> CompletionsDataset::summary() const {
  std::vector<std::string> lines;
  for (std::size_t s = 0; s < sets_.size(); ++s) {
    const Pairs& pairs = *pairs_[s];
    std::int64_t learned = 0;
    for (const Pairs::Pair& pair : pairs.pairs) learned += pair.count - std::max<std::int64_t>(pair.prompt, 1);
    std::string line = fmt::format("{}: {} pairs in {} samples, {} tokens, of which {} count", sets_[s].name,
                                   pairs.pairs.size(), pairs.samples(), pairs.tokens.size(), learned);
    if (pairs.skipped > 0) line += fmt::format("; {} pairs too long, left out", pairs.skipped);
    if (pairs.cut > 0) line += fmt::format("; {} prompts cut", pairs.cut);
    if (s == 0) {
      line +=
          fmt::format("; {:.2f} epochs", static_cast<double>(sets_[0].samples) / static_cast<double>(pairs.samples()));
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::span<const OptionSpec> dataset_options(std::string_view name) {
  if (name == kCompletionsDataset) return kCompletionsOptions;
  return {};
}

std::unique_ptr<Dataset> make_completions_dataset(const ConfigView& config, HostContext& host,
                                                  const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) config.fail("plugin", "needs a tokenizer, and this command makes none");
  CompletionsDataset::Settings settings;
  settings.train = config.strings("train");
  if (settings.train.empty()) config.fail("train", "names no file");
  for (const ConfigView& set : config.tables("valid"))
    settings.valid.push_back({set.string("name"), set.string("path")});
  settings.prompt_key = config.string("prompt_key");
  settings.completion_key = config.string("completion_key");
  const std::string too_long = config.string("too_long");
  settings.too_long = too_long == "skip"  ? CompletionsDataset::Settings::TooLong::skip
                      : too_long == "cut" ? CompletionsDataset::Settings::TooLong::cut
                                          : CompletionsDataset::Settings::TooLong::stop;
  settings.pack = config.boolean("pack");
  settings.seq = host.facts().model.seq_length;
  settings.train_samples = host.facts().batch.train_samples;
  settings.seed = host.facts().seed;
  auto dataset = std::make_unique<CompletionsDataset>(settings, *tokenizer);
  for (const std::string& line : dataset->summary()) host.log(LogLevel::info, line);
  return dataset;
}

}  // namespace espalier::app
