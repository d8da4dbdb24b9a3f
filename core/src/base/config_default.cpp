// The few TOML literals that defaults are written in. Recipes are read by the app with a whole TOML parser; the core
// stays free of it.
#include <charconv>
#include <cmath>

#include "base/config_text.hpp"

namespace espalier {

namespace {

class DefaultParser {
 public:
  explicit DefaultParser(std::string_view text) : rest_(text) {}

  std::optional<ConfigValue> whole() {
    auto result = value();
    skip_space();
    if (!rest_.empty()) return std::nullopt;
    return result;
  }

 private:
  static std::optional<ConfigValue> made(ConfigValue::Data data) {
    return ConfigValue{std::move(data), {"", 0, 0, "default"}};
  }

  void skip_space() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t' || rest_.front() == '\n')) {
      rest_.remove_prefix(1);
    }
  }

  bool take(std::string_view token) {
    skip_space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::optional<ConfigValue> value() {
    if (take("[")) return array();
    if (take("{")) return table();
    if (take("\"")) return string('"');
    if (take("'")) return string('\'');
    return word();
  }

  std::optional<ConfigValue> array() {
    ConfigValue::Array values;
    while (!take("]")) {
      auto element = value();
      if (!element) return std::nullopt;
      values.push_back(std::move(*element));
      if (!take(",")) {
        if (!take("]")) return std::nullopt;
        break;
      }
    }
    return made(std::move(values));
  }

  std::optional<ConfigValue> table() {
    if (!take("}")) return std::nullopt;
    auto empty = std::make_shared<ConfigTable>();
    empty->source.origin = "default";
    return made(std::move(empty));
  }

  std::optional<ConfigValue> string(char quote) {
    std::string text;
    while (!rest_.empty()) {
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == quote) return made(std::move(text));
      if (c == '\\' && quote == '"') {
        if (rest_.empty()) return std::nullopt;
        switch (rest_.front()) {
          case 'n':
            c = '\n';
            break;
          case 't':
            c = '\t';
            break;
          case 'r':
            c = '\r';
            break;
          case '"':
            c = '"';
            break;
          case '\\':
            c = '\\';
            break;
          default:
            return std::nullopt;
        }
        rest_.remove_prefix(1);
      }
      text += c;
    }
    return std::nullopt;
  }

  std::optional<ConfigValue> word() {
    const std::string_view all = rest_.substr(0, rest_.find_first_of(" \t\n,]}"));
    rest_.remove_prefix(all.size());
    if (all == "true" || all == "false") return made(all == "true");
    std::string digits;  // TOML allows 1_000_000 and +1; from_chars does not
    for (const char c : all) {
      if (c != '_') digits += c;
    }
    const std::size_t sign = digits.starts_with('+') ? 1 : 0;
    const char* const first = digits.data() + sign;
    const char* const last = digits.data() + digits.size();
    if (first == last) return std::nullopt;
    std::int64_t whole = 0;
    if (const auto read = std::from_chars(first, last, whole); read.ec == std::errc() && read.ptr == last) {
      return made(whole);
    }
    double real = 0;
    if (const auto read = std::from_chars(first, last, real); read.ec == std::errc() && read.ptr == last) {
      return made(real);
    }
    return std::nullopt;
  }

  std::string_view rest_;
};

}  // namespace

std::optional<ConfigValue> parse_default(std::string_view text) { return DefaultParser(text).whole(); }

}  // namespace espalier
