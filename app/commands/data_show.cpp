#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "commands/commands.hpp"
#include "config/open.hpp"
#include "espalier/error.hpp"
#include "session/builtins.hpp"
#include "session/host_context.hpp"
#include "text/utf8.hpp"
#include "train/batch_schedule.hpp"

namespace espalier::app {
namespace {

constexpr ArgSpec kArgs[] = {
    kRecipeArg,
    {"--step", ArgType::integer, "step of the training, counted from 1 as in the log", true},
    {"--text", ArgType::integer, "bytes of text shown of each sample; 0: all", false, "160"},
    kSetArg,
};

/// Control characters, quotes and backslashes escaped, so that a sample is one line; what is no UTF-8 replaced.
std::string one_line(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\u{:04x}", byte);
    } else {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result + "\"";
}

std::string pieces_text(const SampleOrigin& origin) {
  std::string text;
  for (const SamplePiece& piece : origin.pieces) {
    text += fmt::format(" {}[{}..{})", piece.document, piece.offset, piece.offset + piece.count);
  }
  return text.empty() ? "" : ", documents" + text;
}

/// The recipe's tokenizer and dataset, made for one process that trains nothing.
struct OpenData {
  OpenRecipe opened;
  std::unique_ptr<Communicator> alone = make_self_communicator("world");
  Services services;
  std::vector<std::unique_ptr<ComponentHost>> hosts;
  Owned<Tokenizer> tokenizer;
  Owned<Dataset> dataset;

  template <class Interface>
  Owned<Interface> make(const PluginChoice& choice) {
    const LoadedPlugin& plugin = opened.plugins->load(choice.plugin, choice.device);
    hosts.push_back(std::make_unique<ComponentHost>(choice.plugin, services));
    return opened.plugins->create<Interface>(plugin, ConfigView(choice.options, choice.path), *hosts.back());
  }

  explicit OpenData(const Args& args) : opened(open_recipe(recipe_request(args))) {
    add_builtins(*opened.plugins);
    services.facts = facts_of(opened.recipe, 0);
    for (Communicator*& group : services.groups) group = alone.get();
    tokenizer = make<Tokenizer>(opened.recipe.tokenizer);
    services.facts.model.tokenizer_vocab = tokenizer->vocab_size();
    services.tokenizer = tokenizer.get();
    dataset = make<Dataset>(opened.recipe.data);
  }
};

int run(const Args& args) {
  const std::int64_t step = args.integer("--step");
  const std::int64_t shown = args.integer("--text");
  if (shown < 0) throw ConfigError("command line: --text: must be 0 (all) or more");
  OpenData data(args);
  const TrainSection& train = data.opened.recipe.train;
  if (step < 1 || step > train.train_steps) {
    throw ConfigError(
        fmt::format("command line: --step: the run has steps 1 to {}, found {}", train.train_steps, step));
  }
  const BatchSchedule batches(train.batch, data.services.facts.grid.data);
  const std::int64_t first = batches.samples_after(step - 1);
  const StepBatch batch = batches.at(first);
  std::cout << fmt::format("step {}: samples {} to {} of the training order\n", step, first,
                           first + batch.global_batch - 1);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.dataset->sample_tokens()));
  std::vector<std::uint8_t> mask(tokens.size() - 1);
  for (std::int64_t i = first; i < first + batch.global_batch; ++i) {
    std::ranges::fill(mask, std::uint8_t{1});
    data.dataset->read(0, i, tokens, mask);
    const SampleOrigin origin = data.dataset->origin(0, i);
    std::string text = data.tokenizer->decode(tokens);
    const bool cut = shown > 0 && static_cast<std::int64_t>(text.size()) > shown;
    if (cut) text.resize(static_cast<std::size_t>(shown));
    std::string valid;
    append_repaired_utf8(text, valid);
    const auto masked = std::ranges::count(mask, std::uint8_t{0});
    std::cout << fmt::format("sample {}: {}, its sample {}{}{}\n  {}{}\n", i, origin.source, origin.sample,
                             pieces_text(origin), masked > 0 ? fmt::format(", {} targets do not count", masked) : "",
                             one_line(valid), cut ? " …" : "");
  }
  std::cout << std::flush;
  return 0;
}

}  // namespace

const Command kDataShow{
    "data show", "the documents, offsets and text that a step of a run trains on",
    "The order of samples does not depend on ranks, so this is what any layout of the recipe reads in that step.\n"
    "Documents are numbered within their file; 12[100..160) means tokens 100 to 159 of document 12.\n"
    "  trainer data show configs/quickstart.toml --step 300\n"
    "  trainer data show runs/quickstart/recipe.toml --step 300 --text 0",
    kArgs, run};

}  // namespace espalier::app
