#include <iostream>
#include <memory>

#include "commands/commands.hpp"
#include "config/open.hpp"
#include "session/builtins.hpp"
#include "session/host_context.hpp"

namespace espalier::app {
namespace {

constexpr ArgSpec kPluginArg{"--plugin", ArgType::string, "whose format it is: a dataset plugin", false, "data_indexed",
                             false,      "NAME"};

constexpr ArgSpec kInspectArgs[] = {
    {"PREFIX", ArgType::string, "the data's path without .bin and .idx", true},
    {"--json", ArgType::flag, "print one JSON object"},
    kPluginArg,
};
constexpr ArgSpec kMergeArgs[] = {
    {"PREFIX", ArgType::string, "the pairs to merge, in this order", true, nullptr, true},
    {"--output", ArgType::string, "prefix of the result", true, nullptr, false, "PREFIX"},
    {"--join-open-documents", ArgType::flag,
     "let a last document that was never closed run on into the next pair, as Megatron does, instead of refusing it"},
    kPluginArg,
};
constexpr ArgSpec kVerifyArgs[] = {
    {"PREFIX", ArgType::string, "the pairs to verify", true, nullptr, true},
    {"--cache-dir", ArgType::string, "folder of the cached index arrays, where it is not the data's", false, nullptr,
     false, "DIR"},
    {"--vocab", ArgType::integer, "read every token and refuse ids at and above N"},
    kPluginArg,
};
constexpr ArgSpec kIndicesArgs[] = {
    {"PREFIX", ArgType::string, "the data's path without .bin and .idx", true},
    {"--sampling", ArgType::string, "whose rules", false, "bigscience", false, "bigscience|megatron_core"},
    {"--split", ArgType::string, "shares of train, validation and test: 949,50,1", true, nullptr, false, "SHARES"},
    {"--seq-length", ArgType::integer, "tokens of a sample", true},
    {"--samples", ArgType::string, "samples wanted of train, validation and test: 1000,50,5", true, nullptr, false,
     "N,N,N"},
    {"--seed", ArgType::integer, "of the shuffles", true},
    {"--out", ArgType::string, "folder to write to; it is made", true, nullptr, false, "DIR"},
    {"--no-extra-token", ArgType::flag, "megatron_core with add_extra_token_to_sequence off"},
    {"--keep-partial", ArgType::flag, "megatron_core with drop_last_partial_validation_sequence off"},
    {"--tokenizer-identity", ArgType::string,
     "name the files as megatron_core's cache does: what identifies its tokenizer (unique_identifiers), as JSON", false, nullptr, false,
     "JSON"},
    {"--dataset-path", ArgType::string, "with it: the path as Megatron is given it, where that is not PREFIX", false, nullptr, false,
     "PATH"},
    kPluginArg,
};

/// "--seq-length" → "seq_length", "PREFIX" → "prefix".
std::string key_of(std::string_view argument) {
  std::string key;
  for (const char c : argument.substr(argument.find_first_not_of('-'))) {
    key += c == '-' ? '_' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  return key;
}

ConfigValue::Data value_of(const Args& args, const ArgSpec& spec) {
  switch (spec.type) {
    case ArgType::flag:
      return true;
    case ArgType::integer:
      return args.integer(spec.name);
    case ArgType::number:
      return args.number(spec.name);
    case ArgType::string:
      break;
  }
  if (!spec.repeated) return args.string(spec.name);
  ConfigValue::Array list;
  for (const std::string& text : args.strings(spec.name)) list.push_back({text, {}});
  return list;
}

/// The job of a dataset plugin that has the command's word, with the command's arguments as its options.
int run_tool(const char* job, std::span<const ArgSpec> specs, const Args& args) {
  auto table = std::make_shared<ConfigTable>();
  table->source = {"", 0, 0, "command line"};
  for (const ArgSpec& spec : specs) {
    if (std::string_view(spec.name) == kPluginArg.name || !args.has(spec.name)) continue;
    table->values[key_of(spec.name)] = {value_of(args, spec), {"", 0, 0, "command line"}};
  }
  ConfigTable jobs;
  jobs.values[job] = {table, {"", 0, 0, "command line"}};
  const auto host = make_plugin_host("", {});
  add_builtins(*host);
  const LoadedPlugin& plugin = host->load(args.string(kPluginArg.name));
  std::vector<ConfigProblem> problems;
  check_options(jobs, "data", plugin.options<DatasetTool>(), {}, problems);
  throw_if_any(problems);
  Services services;
  ComponentHost context(args.string(kPluginArg.name), services);
  const auto tool = host->create<DatasetTool>(plugin, ConfigView(jobs, "data"), context);
  std::cout << tool->run() << std::flush;
  return 0;
}

}  // namespace

const Command kDataInspect{"data inspect", "what a token dataset holds: type, documents, tokens, sizes",
                           "  trainer data inspect data/fr\n  trainer data inspect data/fr --json", kInspectArgs,
                           [](const Args& args) { return run_tool("inspect", kInspectArgs, args); }};

const Command kDataMerge{
    "data merge", "make one token dataset of several, in the order given",
    "All parts are checked before a byte is written, and must hold one type; nothing appears under the\n"
    "output's name before all of it is on disk.\n"
    "  trainer data merge shard_0 shard_1 shard_2 --output data/fr",
    kMergeArgs, [](const Args& args) { return run_tool("merge", kMergeArgs, args); }};

const Command kDataVerify{
    "data verify", "check token datasets and every block of their cached index arrays",
    "Training checks a block when it is touched first; this checks all of them. Exit code 4 and a line\n"
    "for each damaged file.\n"
    "  trainer data verify data/en data/fr --vocab 250680",
    kVerifyArgs, [](const Args& args) { return run_tool("verify", kVerifyArgs, args); }};

const Command kDataIndices{
    "data indices", "write the index arrays of a dataset as .npy files, to compare with Megatron's",
    "Writes train_doc_idx.npy, train_sample_idx.npy, train_shuffle_idx.npy, and so on for each split that\n"
    "is not empty.\n"
    "  trainer data indices data/fr --split 949,50,1 --seq-length 2048 --samples 100000,1000,10 --seed 1234\n"
    "    --sampling bigscience --out indices\n"
    "With --tokenizer-identity the names are those by which Megatron-LM core finds its cache; without its path_to_cache it\n"
    "looks in PREFIX/cache/GPTDataset_indices:\n"
    "  trainer data indices data/fr --split 949,50,1 --seq-length 2048 --samples 100000,1000,10 --seed 1234\n"
    "    --sampling megatron_core --out data/fr/cache/GPTDataset_indices\n"
    "    --tokenizer-identity '{\"class\": \"HuggingFaceTokenizer\", \"tokenizer_path\": [\"x\"]}'",
    kIndicesArgs, [](const Args& args) { return run_tool("indices", kIndicesArgs, args); }};

}  // namespace espalier::app
