#include <charconv>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.hpp"
#include "espalier/error.hpp"
#include "text/byte_tokenizer.hpp"
#include "text/tokenizers/huggingface_tokenizer.hpp"
#include "text/tokenizers/open.hpp"
#include "text/utf8.hpp"

namespace espalier::app {
namespace {

using Json = nlohmann::json;

constexpr ArgSpec kFileArg{"--tokenizer", ArgType::string, "tokenizer.json, a SentencePiece *.model, or \"bytes\"",
                           true,          nullptr,         false,
                           "FILE"};
constexpr ArgSpec kEncodeArgs[] = {kFileArg};
constexpr ArgSpec kDecodeArgs[] = {
    kFileArg,
    {"--keep-special", ArgType::flag, "write special tokens, too (tokenizer.json only)"},
};

std::unique_ptr<Tokenizer> open(const Args& args) {
  const std::string name = args.string("--tokenizer");
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  return open_tokenizer_file(name);
}

/// Gives each line of standard input with its number to `line`; errors name the line.
void for_each_line(const std::function<void(const Json& value)>& line) {
  std::string text;
  for (std::int64_t number = 1; std::getline(std::cin, text); ++number) {
    const std::string where = "standard input:" + std::to_string(number) + ": ";
    Json value;
    try {
      value = Json::parse(text);
    } catch (const Json::exception& error) {
      const std::string what = error.what();
      const std::size_t start = what.find("] ");
      throw IoError(where + "not JSON: " + (start == std::string::npos ? what : what.substr(start + 2)));
    }
    try {
      line(value);
    } catch (const Error& error) {
      throw IoError(where + error.what());
    }
    if (!std::cout) throw IoError("standard output: cannot be written; what was printed is not complete");
  }
  std::cout.flush();
}

[[noreturn]] void expected(const char* what, const Json& found) {
  std::string text = found.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "…";
  throw IoError(std::string("expected ") + what + ", found " + text);
}

int run_encode(const Args& args) {
  std::ios::sync_with_stdio(false);
  const auto tokenizer = open(args);
  std::vector<std::int32_t> ids;
  std::string out;
  for_each_line([&](const Json& value) {
    if (!value.is_string()) expected("a string", value);
    ids.clear();
    tokenizer->encode(value.get_ref<const std::string&>(), ids);
    out = "[";
    char digits[16];
    for (const std::int32_t id : ids) {
      if (out.size() > 1) out += ',';
      out.append(digits, std::to_chars(digits, digits + sizeof(digits), id).ptr);
    }
    out += "]\n";
    std::cout << out;
  });
  return 0;
}

int run_decode(const Args& args) {
  std::ios::sync_with_stdio(false);
  const auto tokenizer = open(args);
  const auto* with_special = dynamic_cast<const HuggingFaceTokenizer*>(tokenizer.get());
  const bool keep_special = args.flag("--keep-special");
  if (keep_special && with_special == nullptr) {
    throw ConfigError("command line: --keep-special: is for a tokenizer.json");
  }
  std::vector<std::int32_t> ids;
  for_each_line([&](const Json& value) {
    if (!value.is_array()) expected("a list of ids", value);
    ids.clear();
    for (const Json& id : value) {
      if (!id.is_number_integer() || id < 0 || id >= tokenizer->vocab_size()) {
        expected(("ids from 0 to " + std::to_string(tokenizer->vocab_size() - 1)).c_str(), id);
      }
      ids.push_back(id.get<std::int32_t>());
    }
    std::string text;
    append_repaired_utf8(keep_special ? with_special->decode(ids, true) : tokenizer->decode(ids), text);
    std::cout << Json(text).dump() << '\n';
  });
  return 0;
}

}  // namespace

const Command kTokenizerEncode{
    "tokenizer encode", "text to ids: JSON strings on standard input, one a line",
    "Writes a list of ids for each line. Added tokens written in a text are recognised; none are put around it.\n"
    "  echo '\"Hello world\"' | trainer tokenizer encode --tokenizer tokenizer.json",
    kEncodeArgs, run_encode};

const Command kTokenizerDecode{
    "tokenizer decode", "ids to text: JSON lists of ids on standard input, one a line",
    "Writes a JSON string for each line, special tokens left out. Bytes that are not UTF-8 become U+FFFD.\n"
    "  echo '[72, 101]' | trainer tokenizer decode --tokenizer tokenizer.json",
    kDecodeArgs, run_decode};

}  // namespace espalier::app
