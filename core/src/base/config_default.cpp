// The few TOML literals that defaults are written in. Recipes are read by the app with a whole TOML parser; the core
// stays free of it.
#include <algorithm>
#include <charconv>

#include "base/config_text.hpp"

namespace espalier {

namespace {

class DefaultParser {
 public:
  explicit DefaultParser(std::string_view text) : rest_(text) {}

  std::optional<ConfigValue> whole() {
    auto result = value();
    skip_space();
    return rest_.empty() ? result : std::nullopt;
  }

 private:
  static ConfigValue made(ConfigValue::Data data) { return {std::move(data), {"", 0, 0, "default"}}; }

  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size())); }

  bool take(char token) {
    skip_space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<ConfigValue> value() {
    if (take('[')) return array();
    if (take('{')) return take('}') ? std::optional(made(empty_table())) : std::nullopt;
    if (take('"')) return string('"');
    if (take('\'')) return string('\'');
    return word();
  }

  static std::shared_ptr<ConfigTable> empty_table() {
    auto table = std::make_shared<ConfigTable>();
    table->source.origin = "default";
    return table;
  }

  std::optional<ConfigValue> array() {
    ConfigValue::Array values;
    while (!take(']')) {
      auto element = value();
      if (!element) return std::nullopt;
      values.push_back(std::move(*element));
      if (!take(',') && !rest_.starts_with(']')) return std::nullopt;
    }
    return made(std::move(values));
  }

  std::optional<ConfigValue> string(char quote) {
    std::string text;
    while (!rest_.empty()) {
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == quote) return made(std::move(text));
      if (c == '\\' && quote == '"') {
        constexpr std::string_view kNames = "nt\"\\", kMeanings = "\n\t\"\\";
        const auto which = rest_.empty() ? std::string_view::npos : kNames.find(rest_.front());
        if (which == std::string_view::npos) return std::nullopt;
        c = kMeanings[which];
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
    std::string digits(all.substr(all.starts_with('+') ? 1 : 0));  // from_chars knows neither +1 nor 1_000
    std::erase(digits, '_');
    const char* const last = digits.data() + digits.size();
    std::int64_t whole = 0;
    double real = 0;
    const auto read = [&](auto& number) {
      const auto result = std::from_chars(digits.data(), last, number);
      return result.ec == std::errc() && result.ptr == last;
    };
    if (read(whole)) return made(whole);
    if (read(real)) return made(real);
    return std::nullopt;
  }

  std::string_view rest_;
};

}  // namespace

std::optional<ConfigValue> parse_default(std::string_view text) { return DefaultParser(text).whole(); }

}  // namespace espalier
