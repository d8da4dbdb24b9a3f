#include <algorithm>
#include <iostream>
#include <memory>

#include "commands/commands.hpp"
#include "host/plugin_host.hpp"
#include "program.hpp"
#include "session/builtins.hpp"
#include "session/host_context.hpp"
#include "text/preprocess.hpp"
#include "text/progress.hpp"
#include "text/tokenizers/open.hpp"
#include "train/stop.hpp"

namespace espalier::app {
namespace {

constexpr const char* kDefaultKey = "text";

constexpr ArgSpec kArgs[] = {
    {"--input", ArgType::string, "text or JSONL file, in the order of the documents (may be repeated)", true, nullptr,
     true, "FILE"},
    {"--output", ArgType::string, "prefix of what is written: PREFIX.bin and PREFIX.idx; its folder is made", true,
     nullptr, false, "PREFIX"},
    {"--tokenizer", ArgType::string, "text to ids: \"bytes\", a file (tokenizer.json, *.model), or a plugin", false, "bytes",
     false, "NAME"},
    {"--plugin", ArgType::string, "whose format is written: a dataset plugin", false, "data_indexed", false, "NAME"},
    {"--format", ArgType::string,
     "text: a document a file; jsonl: a document a line; auto: by the file's name (.jsonl, .ndjson, .json)", false,
     "auto", false, "auto|text|jsonl"},
    {"--key", ArgType::string, "where a JSONL object has its text", false, kDefaultKey, false, "NAME"},
    {"--split-paragraphs", ArgType::flag, "plain text: blank lines end a document"},
    {"--no-end-of-document", ArgType::flag, "do not append the end-of-document id to each document"},
    {"--on-bad-line", ArgType::string,
     "a line that is not JSON, has no text, …: stop with its number, or skip and count", false, "stop", false,
     "stop|skip"},
    {"--bad-characters", ArgType::string,
     "invalid UTF-8 and lone surrogates: a fault of the line (see --on-bad-line), or replace by U+FFFD and count",
     false, "refuse", false, "refuse|replace"},
};

/// Position of the argument's value among its choices.
int choice(const Args& args, const char* name, std::initializer_list<const char*> choices) {
  const std::string value = args.string(name);
  std::string known;
  int at = 0;
  for (const char* candidate : choices) {
    if (value == candidate) return at;
    known += (at++ == 0 ? "" : ", ") + std::string(candidate);
  }
  throw ConfigError(std::string("command line: ") + name + ": expected one of " + known + ", found \"" + value + "\"");
}

PreprocessJob job_of(const Args& args) {
  PreprocessJob job;
  job.inputs = args.strings("--input");
  job.output = args.string("--output");
  if (job.output.empty() || job.output.back() == '/') {
    throw ConfigError("command line: --output: expected the prefix of two files, as data/fr, found \"" + job.output +
                      "\"");
  }
  constexpr TextFormat kFormats[] = {TextFormat::automatic, TextFormat::text, TextFormat::jsonl};
  job.rules.format = kFormats[choice(args, "--format", {"auto", "text", "jsonl"})];
  const auto any_is = [&](TextFormat format) {
    return std::ranges::any_of(job.inputs,
                               [&](const std::string& file) { return format_of(file, job.rules.format) == format; });
  };
  job.rules.split_paragraphs = args.flag("--split-paragraphs");
  if (job.rules.split_paragraphs && !any_is(TextFormat::text)) {
    throw ConfigError("command line: --split-paragraphs: is for plain text; a line of JSONL is a document already");
  }
  job.rules.key = args.string("--key");
  if (job.rules.key != kDefaultKey && !any_is(TextFormat::jsonl)) {
    throw ConfigError("command line: --key: is for JSONL, and no input is (by its name; --format jsonl says so)");
  }
  job.rules.skip_bad_lines = choice(args, "--on-bad-line", {"stop", "skip"}) == 1;
  job.rules.repair_characters = choice(args, "--bad-characters", {"refuse", "replace"}) == 1;
  job.rules.offers_options = true;
  job.end_of_document = !args.flag("--no-end-of-document");
  return job;
}

/// With its defaults: the command has no table of options for it.
template <class Interface>
Owned<Interface> make(PluginHost& host, const std::string& name, const char* argument,
                      std::vector<std::unique_ptr<ComponentHost>>& hosts, Services& services) {
  const LoadedPlugin& plugin = host.load(name);
  ConfigTable options;
  std::vector<ConfigProblem> problems;
  check_options(options, argument, plugin.options<Interface>(), {}, problems);
  throw_if_any(problems);
  hosts.push_back(std::make_unique<ComponentHost>(name, services));
  return host.create<Interface>(plugin, ConfigView(options, argument), *hosts.back());
}

int run(const Args& args) {
  if (const Launch launch = detect_launch(); launch.launched_tasks > 1) {
    throw ConfigError("command line: preprocess runs as one process, but " + launch.launcher + " says " +
                      std::to_string(launch.launched_tasks) + " tasks; start it without mpiexec");
  }
  const StopSignals signals;
  const PreprocessJob job = job_of(args);
  const std::int64_t bytes = check_inputs(job.inputs);
  PluginHost host(plugin_search_path({}, {}, installed_plugin_dir()));
  add_builtins(host);
  Services services;
  std::vector<std::unique_ptr<ComponentHost>> hosts;
  const std::string named = args.string("--tokenizer");
  const auto tokenizer = names_tokenizer_file(named) ? own(open_tokenizer_file(named))
                                                     : make<Tokenizer>(host, named, "--tokenizer", hosts, services);
  const auto writer = make<TokenWriter>(host, args.string("--plugin"), "--plugin", hosts, services);
  PreprocessReport report;
  {
    ByteProgress progress("preprocess " + job.output, bytes);
    report = preprocess(job, *tokenizer, *writer, [&](std::int64_t read) { progress.add(read); });
  }
  std::cout << to_string(report, job) << std::flush;
  return 0;
}

}  // namespace

const Command kPreprocess{
    "preprocess", "make a token dataset from text or JSONL files",
    "A JSONL line {\"text\": …} is a document; a plain text file is one document (or its paragraphs). The tokenizer's\n"
    "end-of-document id is appended to each; empty documents are left out and counted. Nothing appears under the\n"
    "output's name before all of it is on disk.\n"
    "  trainer preprocess --input corpus/fr.jsonl --output data/fr\n"
    "  trainer preprocess --input a.txt --input b.txt --split-paragraphs --output data/books",
    kArgs, run};

}  // namespace espalier::app
