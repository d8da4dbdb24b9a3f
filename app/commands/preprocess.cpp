#include <algorithm>
#include <iostream>
#include <memory>

#include "commands/commands.hpp"
#include "host/plugin_host.hpp"
#include "program.hpp"
#include "session/builtins.hpp"
#include "session/host_context.hpp"
#include "session/threads_per_rank.hpp"
#include "text/preprocess.hpp"
#include "text/tokenizers/open.hpp"
#include "train/phase.hpp"
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
    {"--language-key", ArgType::string,
     "one output a language, which a JSONL object has under this key; --output then holds {language}", false, nullptr,
     false, "NAME"},
    {"--language-from-name", ArgType::flag,
     "one output a language, which the inputs are named after: fr.jsonl, fr-00001-of-00012.txt.gz, fr_3.jsonl"},
    {"--bad-characters", ArgType::string,
     "invalid UTF-8 and lone surrogates: a fault of the line (see --on-bad-line), or replace by U+FFFD and count",
     false, "refuse", false, "refuse|replace"},
    {"--max-document-bytes", ArgType::integer,
     "a line, paragraph or file of more bytes is a fault (see --on-bad-line): it has to fit into memory, several times",
     false, "268435456", false, "N"},
    {"--piece-bytes", ArgType::integer, "text that a thread works off at a time, and that a killed run may lose", false,
     "16777216", false, "N"},
    {"--threads", ArgType::integer, "of each rank; 0: its share of the allowed cores", false, "0", false, "N"},
    {"--restart", ArgType::flag, "drop the finished pieces that a stopped run left"},
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

std::int64_t number(const Args& args, const char* name, std::int64_t least, std::int64_t most) {
  const std::int64_t value = args.integer(name);
  if (value < least || value > most) {
    throw ConfigError(std::string("command line: ") + name + ": expected " + std::to_string(least) + " to " +
                      std::to_string(most) + ", found " + std::to_string(value));
  }
  return value;
}

void choose_languages(const Args& args, bool any_jsonl, bool any_text, PreprocessJob& job) {
  job.rules.language_key = args.has("--language-key") ? args.string("--language-key") : "";
  const bool by_key = args.has("--language-key"), by_name = args.flag("--language-from-name");
  if (by_key && by_name) {
    throw ConfigError(
        "command line: --language-key: not together with --language-from-name; which one says the language?");
  }
  if (by_key && (any_text || !any_jsonl)) {
    throw ConfigError(
        "command line: --language-key: is for JSONL, and an input is plain text (by its name; --format jsonl says "
        "otherwise)");
  }
  if (by_key && (job.rules.language_key.empty() || job.rules.language_key == job.rules.key)) {
    throw ConfigError("command line: --language-key: must name another key than the text's, found \"" +
                      job.rules.language_key + "\"");
  }
  job.language = by_key ? LanguageFrom::key : by_name ? LanguageFrom::file_name : LanguageFrom::nothing;
  const std::size_t place = job.output.find(kLanguagePlace);
  if ((place != std::string::npos) != (by_key || by_name)) {
    throw ConfigError(
        by_key || by_name
            ? "command line: --output: one output a language needs {language} in its prefix, as data/{language}"
            : "command line: --output: has {language} in it, but nothing says the language: "
              "--language-key NAME or --language-from-name");
  }
  if (by_name) {
    for (const std::string& input : job.inputs) static_cast<void>(language_of_file(input));
  }
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
  job.rules.longest = number(args, "--max-document-bytes", 1, std::int64_t{1} << 31);
  job.piece_bytes = number(args, "--piece-bytes", 1, std::int64_t{1} << 31);
  job.restart = args.flag("--restart");
  choose_languages(args, any_is(TextFormat::jsonl), any_is(TextFormat::text), job);
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

int preprocess_on(Communicator& world, const Args& args) {
  const StopSignals signals;
  PreprocessJob job = alike([&] { return job_of(args); });
  job.threads = alike([&] {
    return threads_per_rank(static_cast<int>(number(args, "--threads", 0, 4096)), detect_launch().local_size);
  });
  job.progress = true;
  PluginHost host(plugin_search_path({}, {}, installed_plugin_dir()));
  add_builtins(host);
  Services services;
  std::vector<std::unique_ptr<ComponentHost>> hosts;
  Owned<Tokenizer> tokenizer;
  const auto make_writer = [&] {
    return make<TokenWriter>(host, args.string("--plugin"), "--plugin", hosts, services);
  };
  phase(world, [&] {
    check_inputs(job.inputs);
    const std::string named = args.string("--tokenizer");
    tokenizer = names_tokenizer_file(named) ? own(open_tokenizer_file(named))
                                            : make<Tokenizer>(host, named, "--tokenizer", hosts, services);
    make_writer();  // a name that is wrong is found before the work
  });
  const PreprocessReport report = preprocess(job, *tokenizer, make_writer, world);
  if (world.rank() == 0) std::cout << to_string(report, job) << std::flush;
  return 0;
}

int run(const Args& args) {
  const std::unique_ptr<Communicator> world = make_world_communicator();
  return run_on_world(*world, [&] { return preprocess_on(*world, args); });
}

}  // namespace

const Command kPreprocess{
    "preprocess", "make a token dataset from text or JSONL files",
    "A JSONL line {\"text\": …} is a document; a plain text file is one document (or its paragraphs); .gz and .zst "
    "are\n"
    "unpacked. The tokenizer's end-of-document id is appended to each; empty documents are left out and counted. All "
    "cores\n"
    "work, and all ranks under mpiexec; the output is the same. Nothing appears under the output's name before all of "
    "it\n"
    "is on disk; until then finished pieces lie in PREFIX.parts, and the same command goes on after a stop or a kill.\n"
    "  trainer preprocess --input corpus/fr.jsonl --output data/fr\n"
    "  trainer preprocess --input a.txt --input b.txt --split-paragraphs --output data/books\n"
    "  trainer preprocess --input all.jsonl.zst --language-key lang --output 'data/{language}'\n"
    "  mpiexec -n 8 trainer preprocess --input oscar.jsonl --output data/oscar",
    kArgs, run};

}  // namespace espalier::app
