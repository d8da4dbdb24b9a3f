#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "commands/commands.hpp"
#include "commands/saved_model.hpp"
#include "text/choices.hpp"
#include "text/text_dataset.hpp"
#include "train/evaluation.hpp"
#include "train/likelihood.hpp"
#include "train/phase.hpp"

namespace espalier::app {
namespace {

constexpr ArgSpec kArgs[] = {
    {"--checkpoint", ArgType::string,
     "a step_N folder, a folder of checkpoints (its newest), a run's folder, or a Hugging Face folder", true, nullptr,
     false, "DIR"},
    {"--data", ArgType::string,
     "text or JSONL file to evaluate on (may be repeated); without it: the recipe's validation sets", false, nullptr,
     true, "FILE"},
    {"--key", ArgType::string, "where a JSONL object has its text", false, "text", false, "NAME"},
    {"--samples", ArgType::integer, "samples of each set; 0: all", false, "0"},
    {"--choices", ArgType::string,
     "JSONL file of multiple-choice questions, instead of text (may be repeated): {\"context\": …, \"choices\": […], "
     "\"gold\": 0}",
     false, nullptr, true, "FILE"},
    {"--delimiter", ArgType::string, "what stands between a context and its choice; without it: a space", false,
     nullptr, false, "TEXT"},
    {"--details", ArgType::string, "write the log-likelihoods of each question's choices here, a JSON list a line",
     false, nullptr, false, "FILE"},
    kSetArg,
};

void print_line(std::string_view name, const SetLoss& set) {
  fmt::print("{:<28} {:>12} {:>12} {:>9.4f} {:>11.3f} {:>13.4f}\n", name, set.bytes, set.tokens, set.mean(),
             std::exp(set.mean()), set.bits_per_byte());
  std::cout.flush();
}

SavedModel::Request request_of(const Args& args, bool data) {
  return {args.string("--checkpoint"), args.strings("--set"), data, true, false};
}

/// One file's questions and what the model says to them.
struct Answered {
  std::string file;
  std::vector<ChoiceQuestion> questions;
};

std::vector<LikelihoodRequest> requests_of(std::span<const Answered> files, const Tokenizer& tokenizer,
                                           const std::string& delimiter) {
  std::vector<LikelihoodRequest> requests;
  for (const Answered& file : files) {
    for (const ChoiceQuestion& question : file.questions) {
      for (const std::string& choice : question.choices) {
        // At the start of a document nothing is delimited.
        const std::string between = question.context.empty() ? "" : delimiter;
        requests.push_back(continuation_request(tokenizer, question.context, between + choice));
      }
    }
  }
  return requests;
}

void print_answers(std::span<const Answered> files, std::span<const double> likelihoods, const Args& args,
                   const std::string& origin, std::ofstream& details) {
  fmt::print("{:<28} {:>10} {:>9} {:>8} {:>9} {:>8}\n", "questions", "count", "acc", "stderr", "acc_norm", "stderr");
  std::size_t at = 0;
  for (const Answered& file : files) {
    std::size_t count = 0;
    for (const ChoiceQuestion& question : file.questions) {
      const auto own = likelihoods.subspan(at + count, question.choices.size());
      count += own.size();
      if (details.is_open()) details << fmt::format("[{}]\n", fmt::join(own, ", "));
    }
    const ChoiceScores scores = score_choices(file.questions, likelihoods.subspan(at, count));
    at += count;
    fmt::print("{:<28} {:>10} {:>9.4f} {:>8.4f} {:>9.4f} {:>8.4f}\n", file.file, scores.questions, scores.accuracy(),
               standard_error(scores.accuracy(), scores.questions), scores.accuracy_norm(),
               standard_error(scores.accuracy_norm(), scores.questions));
  }
  fmt::print("choices: by log-likelihood, acc_norm by that over bytes ({})\n", origin);
  std::cout.flush();
  if (details.is_open() && !details.flush()) throw IoError(args.string("--details"), "cannot be written", errno);
}

int answer(Communicator& world, const Args& args) {
  std::vector<Answered> files;
  std::ofstream details;  // opened before the work is done
  phase(world, [&] {
    for (const std::string& file : args.strings("--choices")) {
      std::error_code error;
      if (args.has("--details") && std::filesystem::equivalent(file, args.string("--details"), error))
        throw ConfigError("command line: --details: " + file + " holds the questions, which would be replaced; name another file");
    }
    if (args.has("--details") && world.rank() == 0) {
      details.open(args.string("--details"));
      if (!details) throw IoError(args.string("--details"), "cannot be written", errno);
    }
    for (const std::string& file : args.strings("--choices")) files.push_back({file, read_choices(file)});
  });
  SavedModel model(world, request_of(args, false));
  Session& session = model.session();
  std::optional<Likelihoods> likelihoods;
  phase(world, [&] {
    likelihoods.emplace(
        session.facts(),
        requests_of(files, session.tokenizer(), args.has("--delimiter") ? args.string("--delimiter") : " "),
        session.recipe().train.batch.micro_batch, session.pipeline().stages());
  });
  model.load(likelihoods->walks());
  const std::vector<double> result =
      likelihoods->run(session.executor(), session.backend(), world, [](std::int64_t) {});
  phase(world, [&] {
    if (world.rank() == 0) print_answers(files, result, args, model.origin(), details);
  });
  return 0;
}

int evaluate(Communicator& world, const Args& args) {
  const std::vector<std::string> files = args.strings("--data");
  const std::int64_t samples = args.integer("--samples");
  if (samples < 0) throw AgreedError(ExitCode::usage, "command line: --samples: must be 0 (all) or more");
  if (!args.strings("--choices").empty()) {
    if (!files.empty())
      throw AgreedError(ExitCode::usage, "command line: --choices: not together with --data; run twice");
    return answer(world, args);
  }
  for (const char* name : {"--details", "--delimiter"}) {
    if (args.has(name)) throw AgreedError(ExitCode::usage, fmt::format("command line: {}: is for --choices", name));
  }
  SavedModel model(world, request_of(args, files.empty()));
  Session& session = model.session();
  if (files.empty() && model.without_data()) {
    throw AgreedError(
        ExitCode::usage,
        "eval: " + model.origin() + " comes from elsewhere and names no validation sets; name files with --data");
  }
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
    fmt::print("validation: {:.2f} bits per byte ({})\n", total.bits_per_byte(), model.origin());
  }
  if (!std::isfinite(total.mean()))
    throw AgreedError(ExitCode::numerics, "eval: the loss is not finite; the weights of " + model.origin() + " are damaged");
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
    "  trainer eval --checkpoint runs/quickstart --choices questions.jsonl\n"
    "One line a set. Bits per byte compare models with different tokenizers; the total weights each byte alike.",
    kArgs, run};

}  // namespace espalier::app
