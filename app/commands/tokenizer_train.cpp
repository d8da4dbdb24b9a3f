#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "commands/commands.hpp"
#include "espalier/error.hpp"
#include "text/documents.hpp"
#include "text/progress.hpp"
#include "text/tokenizers/bpe_trainer.hpp"

namespace espalier::app {
namespace {

constexpr ArgSpec kArgs[] = {
    {"--input", ArgType::string, "text or JSONL file (may be repeated)", true, nullptr, true, "FILE"},
    {"--output", ArgType::string, "the tokenizer.json to write", true, nullptr, false, "FILE"},
    {"--vocab-size", ArgType::integer, "ids, special tokens and 256 bytes included", true, nullptr, false, "N"},
    {"--pattern", ArgType::string, "how text is split before merging: as BLOOM or as GPT-2 does it", false, "bloom",
     false, "bloom|gpt2"},
    {"--special", ArgType::string,
     "special token, from id 0 on (may be repeated); default: <unk> <s> </s> <pad>, as BLOOM", false, nullptr, true,
     "TOKEN"},
    {"--least", ArgType::integer, "times a pair must occur to be merged", false, "2", false, "N"},
    {"--key", ArgType::string, "where a JSONL object has its text", false, "text", false, "NAME"},
};

SplitStep::Kind pattern_of(const Args& args) {
  const std::string name = args.string("--pattern");
  if (name == "bloom") return SplitStep::Kind::bloom;
  if (name == "gpt2") return SplitStep::Kind::gpt2;
  throw ConfigError("command line: --pattern: expected bloom or gpt2, found \"" + name + "\"");
}

/// By a temporary name, so that no half of a file is ever found under the name.
void write_file(const std::filesystem::path& file, const std::string& content) {
  const std::filesystem::path temporary = file.string() + ".partial";
  std::ofstream out(temporary, std::ios::binary);
  out << content;
  out.close();
  const std::string name = std::filesystem::absolute(file).lexically_normal().string();
  if (!out) throw IoError(name, "cannot be written", errno);
  std::filesystem::rename(temporary, file);
}

int run(const Args& args) {
  const std::vector<std::string> inputs = args.strings("--input");
  const std::filesystem::path output = args.string("--output");
  const SplitStep::Kind pattern = pattern_of(args);
  std::vector<std::string> special = args.strings("--special");
  if (special.empty()) special = {"<unk>", "<s>", "</s>", "<pad>"};
  const std::int64_t vocab_size = args.integer("--vocab-size");
  const std::int64_t least = args.integer("--least");
  if (least < 1) throw ConfigError("command line: --least: expected at least 1, found " + std::to_string(least));
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(output, ignored))) {
    throw IoError(std::filesystem::absolute(output).lexically_normal().string() +
                  ": exists already; name another file, or remove it");
  }
  // What is wrong with the sizes or the output's folder is found before hours of reading.
  static_cast<void>(learn_vocabulary({}, special, vocab_size, least));
  if (output.has_parent_path()) std::filesystem::create_directories(output.parent_path());
  write_file(output.string() + ".probe", "");
  std::filesystem::remove(output.string() + ".probe");

  DocumentRules rules;
  rules.key = args.string("--key");
  PieceCounts counts(pattern);
  std::int64_t documents = 0, bytes = 0;
  {
    ByteProgress progress("tokenizer train " + output.string(), check_inputs(inputs));
    ReadCounts read;
    for (const std::string& input : inputs) {
      read_documents(
          input, rules, read,
          [&](std::string_view text, std::string_view) {
            counts.add(text);
            ++documents;
            bytes += static_cast<std::int64_t>(text.size());
          },
          [&](std::int64_t advanced) { progress.add(advanced); });
    }
  }
  std::cout << fmt::format("read       {} documents, {} bytes, {} pieces, {} distinct\n", documents, bytes,
                           counts.pieces(), counts.distinct())
            << std::flush;
  const LearnedVocabulary learned = learn_vocabulary(counts.take(), special, vocab_size, least);
  write_file(output, tokenizer_json(learned, pattern));
  std::cout << fmt::format("learned    {} ids: {} special tokens, 256 bytes, {} merges\n", learned.size(),
                           learned.special.size(), learned.merges.size());
  if (static_cast<std::int64_t>(learned.size()) < vocab_size) {
    std::cout << fmt::format("           fewer than the {} asked for: no other pair occurs {} times\n", vocab_size,
                             least);
  }
  std::cout << "written    " << output.string() << std::endl;
  return 0;
}

}  // namespace

const Command kTokenizerTrain{"tokenizer train", "learn a byte-level BPE vocabulary from text or JSONL files",
                              "Writes a tokenizer.json that Hugging Face's tokenizers reads, too. Every byte is a "
                              "token, so any text can be encoded.\n"
                              "  trainer tokenizer train --input corpus/fr.jsonl --input corpus/en.jsonl --vocab-size "
                              "32000 --output tokenizer.json",
                              kArgs, run};

}  // namespace espalier::app
