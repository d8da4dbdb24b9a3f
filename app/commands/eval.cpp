#include <cmath>
#include <iostream>
#include <optional>

#include <fmt/format.h>

#include "commands/commands.hpp"
#include "commands/saved_model.hpp"
#include "text/text_dataset.hpp"
#include "train/evaluation.hpp"
#include "train/phase.hpp"

namespace espalier::app {
namespace {

constexpr ArgSpec kArgs[] = {
    {"--checkpoint", ArgType::string, "a step_N folder, a folder of checkpoints (its newest), or a run's folder", true,
     nullptr, false, "DIR"},
    {"--data", ArgType::string,
     "text or JSONL file to evaluate on (may be repeated); without it: the recipe's validation sets", false, nullptr,
     true, "FILE"},
    {"--key", ArgType::string, "where a JSONL object has its text", false, "text", false, "NAME"},
    {"--samples", ArgType::integer, "samples of each set; 0: all", false, "0"},
    kSetArg,
};

void print_line(std::string_view name, const SetLoss& set) {
  fmt::print("{:<28} {:>12} {:>12} {:>9.4f} {:>11.3f} {:>13.4f}\n", name, set.bytes, set.tokens, set.mean(),
             std::exp(set.mean()), set.bits_per_byte());
  std::cout.flush();
}

int evaluate(Communicator& world, const Args& args) {
  const std::vector<std::string> files = args.strings("--data");
  const std::int64_t samples = args.integer("--samples");
  if (samples < 0) throw AgreedError(ExitCode::usage, "command line: --samples: must be 0 (all) or more");
  SavedModel model(world, {args.string("--checkpoint"), args.strings("--set"), files.empty(), true});
  Session& session = model.session();
  std::optional<TextDataset> text;
  phase(world, [&] {
    DocumentRules rules;
    rules.key = args.string("--key");
    if (!files.empty()) text.emplace(files, rules, session.tokenizer(), session.facts().model.seq_length);
  });
  Dataset& dataset = text ? *text : session.dataset();
  Evaluation evaluation(session, dataset, samples);
  if (evaluation.sets().empty()) {
    throw AgreedError(ExitCode::usage, "eval: the recipe's data has no validation sets; name files with --data");
  }
  model.load(std::span(&evaluation.walk(), 1));
  const bool speaks = world.rank() == 0;
  if (speaks)
    fmt::print("{:<28} {:>12} {:>12} {:>9} {:>11} {:>13}\n", "set", "bytes", "tokens", "loss", "perplexity",
               "bits per byte");
  std::vector<SetLoss> losses;
  for (const int set : evaluation.sets()) {
    losses.push_back(evaluation.run(set));
    if (speaks) print_line(losses.back().name, losses.back());
  }
  const SetLoss total = total_of(losses);
  if (speaks) {
    print_line("all, by bytes", total);
    fmt::print("validation: {:.2f} bits per byte (checkpoint of step {})\n", total.bits_per_byte(),
               model.manifest().train.step);
  }
  return 0;
}

int run(const Args& args) {
  const std::unique_ptr<Communicator> world = make_world_communicator();
  return run_on_world(*world, [&] { return evaluate(*world, args); });
}

}  // namespace

const Command kEval{
    "eval", "loss, perplexity and bits per byte of a checkpoint on held-out text",
    "  trainer eval --checkpoint runs/quickstart\n"
    "  trainer eval --checkpoint runs/quickstart/checkpoints/step_100 --data fr.jsonl --data notes.txt\n"
    "  mpiexec -n 2 trainer eval --checkpoint runs/quickstart\n"
    "One line a set. Bits per byte compare models with different tokenizers; the total weights each byte alike.",
    kArgs, run};

}  // namespace espalier::app
