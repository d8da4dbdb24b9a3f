#include "interop/tokenizer_files.hpp"

#include <algorithm>
#include <system_error>

#include "config/toml.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"added_tokens.json", "chat_template.jinja",     "merges.txt",
                                  "spiece.model",      "special_tokens_map.json", "tokenizer_config.json",
                                  "tokenizer.json",    "tokenizer.model",         "vocab.json"};

std::shared_ptr<ConfigTable> table_of(const std::string& recipe, std::string_view section) {
  std::vector<ConfigProblem> problems;
  const ConfigTable root = parse_toml(recipe, "", "checkpoint", problems);
  const ConfigValue* value = root.find(section);
  const auto* table = value == nullptr ? nullptr : std::get_if<std::shared_ptr<ConfigTable>>(&value->data);
  return table == nullptr ? std::make_shared<ConfigTable>() : *table;
}

}  // namespace

std::string string_in(const std::string& recipe, std::string_view section, std::string_view key) {
  const std::shared_ptr<ConfigTable> table = table_of(recipe, section);
  const ConfigValue* value = table->find(key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
  return text == nullptr ? "" : *text;
}

std::vector<fs::path> tokenizer_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const char* name : kNames) {
    if (fs::is_regular_file(folder / name, error)) files.push_back(folder / name);
  }
  return files;
}

std::vector<fs::path> tokenizer_files_of(const std::string& recipe) {
  const std::shared_ptr<ConfigTable> table = table_of(recipe, "tokenizer");
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& [key, option] : table->values) {
    const auto* text = std::get_if<std::string>(&option.data);
    if (text == nullptr || key == "plugin" || !fs::is_regular_file(*text, error)) continue;
    files = tokenizer_files_in(fs::path(*text).parent_path());
    if (std::ranges::find(files, fs::path(*text)) == files.end()) files.emplace_back(*text);
  }
  return files;
}

}  // namespace espalier::app
