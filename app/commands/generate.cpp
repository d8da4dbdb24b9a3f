#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands/commands.hpp"
#include "commands/saved_model.hpp"
#include "text/generation.hpp"
#include "train/phase.hpp"

namespace espalier::app {
namespace {

constexpr ArgSpec kArgs[] = {
    {"--checkpoint", ArgType::string,
     "a step_N folder, a folder of checkpoints (its newest), a run's folder, or a Hugging Face folder", true, nullptr,
     false, "DIR"},
    {"--prompt", ArgType::string, "text to continue (may be repeated); \"\" starts a document", false, nullptr, true,
     "TEXT"},
    {"--prompt-file", ArgType::string,
     "a file whose whole content is a prompt, after those of --prompt (may be repeated)", false, nullptr, true, "FILE"},
    {"--tokens", ArgType::integer, "tokens to draw for each prompt, at most", false, "200", false, "N"},
    {"--temperature", ArgType::number, "logits are divided by it: below 1 safer, above 1 wilder", false, "1.0"},
    {"--top-k", ArgType::integer, "draw from the k likeliest tokens; 0: all", false, "0", false, "K"},
    {"--top-p", ArgType::number, "draw from the likeliest tokens that together have this probability", false, "1.0",
     false, "P"},
    {"--repetition-penalty", ArgType::number,
     "above 1: logits of tokens that the text has already are made smaller by this factor", false, "1.0", false, "F"},
    {"--greedy", ArgType::flag, "always take the likeliest token"},
    {"--seed", ArgType::integer, "of the draws: the same seed gives the same text", false, "1234"},
    {"--ignore-end", ArgType::flag, "go on when the model ends the document"},
    {"--no-cache", ArgType::flag, "compute each token from the whole text again: slow, to compare with"},
    {"--batch", ArgType::integer, "prompts that a stage works on at once; 0: up to 16, fewer when they are long", false,
     "0", false, "N"},
    {"--no-echo", ArgType::flag, "print the continuations without their prompts"},
    kSetArg,
};

constexpr std::size_t kLongestPrompt = std::size_t{1}
                                       << 30;  // bytes: a device that never ends must not fill the memory
constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();  // positions have 31 bits

std::string content_of(const std::string& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) throw IoError(file + ": is a folder; --prompt-file names a file");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw IoError(file, "cannot be opened for reading", errno);
  std::string text;
  for (std::vector<char> block(1 << 20); in.read(block.data(), std::ssize(block)), in.gcount() > 0;) {
    text.append(block.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > kLongestPrompt) {
      throw IoError(
          fmt::format("{}: goes on behind {} bytes; --prompt-file names one text to continue", file, kLongestPrompt));
    }
  }
  if (in.bad()) throw IoError(file, "cannot be read", errno);
  return text;
}

std::vector<std::string> prompts_of(const Args& args) {
  std::vector<std::string> prompts = args.strings("--prompt");
  for (const std::string& file : args.strings("--prompt-file")) prompts.push_back(content_of(file));
  if (prompts.empty()) throw ConfigError("command line: --prompt: give at least one, or --prompt-file");
  return prompts;
}

std::int64_t at_least(const Args& args, const char* name, std::int64_t least) {
  const std::int64_t value = args.integer(name);
  if (value < least)
    throw ConfigError(fmt::format("command line: {}: must be at least {}, found {}", name, least, value));
  return value;
}

Sampler sampler_of(const Args& args) {
  const double temperature = args.flag("--greedy") ? 0 : args.number("--temperature");
  return {{temperature, args.integer("--top-k"), args.number("--top-p"), args.number("--repetition-penalty")},
          static_cast<std::uint64_t>(at_least(args, "--seed", 0))};
}

/// Prints texts that are drawn at the same time one after the other: the first as it comes, each behind it when it is
/// its turn.
class OrderedText {
 public:
  OrderedText(std::span<const std::string> prompts, bool echo)
      : prompts_(prompts), echo_(echo), texts_(prompts.size()) {
    begin();
  }

  void add(std::size_t request, std::string_view part, bool last) {
    Text& text = texts_[request];
    text.over = last;
    if (request != shown_) {
      text.waiting += part;
      return;
    }
    std::cout << part << std::flush;
    while (shown_ < texts_.size() && texts_[shown_].over) {
      ++shown_;
      std::cout << (shown_ < texts_.size() ? "\n\n" : "\n") << std::flush;
      begin();
    }
  }

 private:
  struct Text {
    std::string waiting;
    bool over = false;
  };

  void begin() const {
    if (shown_ == texts_.size()) return;
    if (echo_) std::cout << prompts_[shown_];
    std::cout << texts_[shown_].waiting << std::flush;
  }

  std::span<const std::string> prompts_;
  bool echo_;
  std::vector<Text> texts_;
  std::size_t shown_ = 0;
};

/// Long prompts take time before their first token: says how far they are, on standard error.
class ReadingProgress {
 public:
  /// @param tokens  of all prompts; 0: this rank is silent.
  explicit ReadingProgress(std::int64_t tokens) : tokens_(tokens) {}
  void add(std::int64_t tokens) {
    constexpr double kInterval = 2;  // seconds
    read_ += tokens;
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - start_;
    if (tokens_ == 0 || since.count() < next_) return;
    next_ = since.count() + kInterval;
    std::cerr << fmt::format("generate: {} of {} prompt tokens read ({:.0f} tokens/s)\n", read_, tokens_,
                             static_cast<double>(read_) / since.count());
  }

 private:
  std::int64_t tokens_, read_ = 0;
  double next_ = 1;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Prompts at once: all stages get one before any gets a second, and what nobody asked for must not fill the memory.
struct Batching {
  int batches = 1, batch = 1;
};
Batching batching_of(std::int64_t asked, std::size_t prompts, std::int64_t longest, int stages) {
  constexpr std::int64_t kMost = 16, kTokens = 16384;  // of the cache of one batch, where a single text has no more
  const auto all = static_cast<std::int64_t>(prompts);
  Batching result;
  result.batches = static_cast<int>(std::min<std::int64_t>(all, stages));
  const std::int64_t most = asked > 0 ? asked : std::clamp<std::int64_t>(kTokens / longest, 1, kMost);
  result.batch = static_cast<int>(std::min(most, (all + result.batches - 1) / result.batches));
  return result;
}

int generate(Communicator& world, const Args& args) {
  const std::vector<std::string> prompts = alike([&] { return prompts_of(args); });
  const std::int64_t tokens = alike([&] {
    const std::int64_t asked = at_least(args, "--tokens", 1);
    if (asked > kMostTokens)
      throw ConfigError(fmt::format("command line: --tokens: must be at most {}, found {}", kMostTokens, asked));
    return asked;
  });
  Sampler sampler = alike([&] { return sampler_of(args); });
  const std::int64_t batch = alike([&] { return at_least(args, "--batch", 0); });

  SavedModel model(world, {args.string("--checkpoint"), args.strings("--set"), false, true, true});
  Session& session = model.session();
  std::size_t longest = 0, all = 0;
  phase(world, [&] {
    for (const std::string& prompt : prompts) {
      const std::size_t length = prompt_ids(session.tokenizer(), prompt).size();
      longest = std::max(longest, length);
      all += length;
    }
  });
  const Walk smallest{Mode::forward_only, 1, 1, 1};  // the decoder has its own memory for activations
  model.load(std::span(&smallest, 1));
  DecoderSetup setup{
      &session.facts(),  &session.parameters(),    session.executor().parameters(), &session.backend(),
      &session.tensor(), &session.data_parallel(), session.executor().parts(),      &session.group(Group::pipeline)};
  const std::int64_t most_tokens = static_cast<std::int64_t>(longest) + tokens;
  const Batching at_once = batching_of(batch, prompts.size(), most_tokens, session.facts().grid.pipeline);
  std::unique_ptr<Decoder> decoder;
  phase(world, [&] { decoder = std::make_unique<Decoder>(setup, at_once.batches * at_once.batch, most_tokens); });

  const auto start = std::chrono::steady_clock::now();
  const Grid& grid = session.facts().grid;
  const Drawer drawer{&world, (grid.pipeline - 1) * grid.data * grid.tensor};
  std::optional<OrderedText> text;
  if (world.rank() == 0) text.emplace(prompts, !args.flag("--no-echo"));
  ReadingProgress reading(world.rank() == 0 ? static_cast<std::int64_t>(all) : 0);
  const GenerationRule rule{tokens, args.flag("--ignore-end"), at_once.batch, !args.flag("--no-cache"),
                            [&](std::int64_t read) { reading.add(read); }};
  const std::vector<Continuation> done = continue_texts(*decoder, session.tokenizer(), sampler, prompts, rule, drawer,
                                                        [&](std::size_t request, std::string_view part, bool last) {
                                                          if (text) text->add(request, part, last);
                                                        });
  if (world.rank() != 0) return 0;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::int64_t drawn = 0;
  for (const Continuation& one : done) drawn += one.tokens;
  std::cerr << fmt::format("generate: {} tokens in {:.2f} s ({:.0f} tokens/s), {}\n", drawn, seconds,
                           static_cast<double>(drawn) / std::max(seconds, 1e-9), model.origin());
  return 0;
}

int run(const Args& args) {
  const std::unique_ptr<Communicator> world = make_world_communicator();
  return run_on_world(*world, [&] { return generate(*world, args); });
}

}  // namespace

const Command kGenerate{
    "generate", "continue text with a trained model",
    "The recipe is the one saved with the checkpoint. On one rank it needs no layout, whatever wrote the checkpoint; "
    "under mpiexec it\n"
    "has the recipe's tensor and pipeline sizes, or those of --set; replicas beyond these repeat the work. Where the "
    "recipe has no plugin\n"
    "for a size, parallel_tensor, parallel_pipeline or parallel_zero is taken; sequence parallelism is switched off.\n"
    "  trainer generate --checkpoint runs/quickstart --prompt \"The file\" --tokens 200 --temperature 0.7\n"
    "  trainer generate --checkpoint runs/quickstart/checkpoints/step_100 --prompt-file start.txt --greedy\n"
    "  mpiexec -n 4 trainer generate --checkpoint runs/big --set parallel.pipeline.size=4 --prompt A --prompt B "
    "--prompt C --prompt D\n"
    "Several prompts go through the model together, a batch on each pipeline stage. Text goes to standard output as it "
    "is drawn. Each draw "
    "depends on seed, prompt number and position only.",
    kArgs, run};

}  // namespace espalier::app
