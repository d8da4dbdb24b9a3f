#include <charconv>
#include <cmath>

#include "commands/command.hpp"
#include "espalier/error.hpp"

namespace espalier::app {

namespace {

template <class Number>
Number parse(std::string_view name, const std::string& text, std::string_view expected) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) {
    throw ConfigError("command line: " + std::string(name) + ": expected " + std::string(expected) + ", found \"" +
                      text + "\"");
  }
  return value;
}

}  // namespace

const std::vector<std::string>* Args::find(std::string_view name) const {
  ESPALIER_ASSERT(declared.find(name) != declared.end());
  const auto found = values.find(name);
  return found == values.end() || found->second.empty() ? nullptr : &found->second;
}

bool Args::has(std::string_view name) const { return find(name) != nullptr; }

bool Args::flag(std::string_view name) const { return has(name); }

std::string Args::string(std::string_view name) const {
  const auto* found = find(name);
  return found ? found->back() : std::string();
}

std::vector<std::string> Args::strings(std::string_view name) const {
  const auto* found = find(name);
  return found ? *found : std::vector<std::string>();
}

std::int64_t Args::integer(std::string_view name) const {
  const auto* found = find(name);
  ESPALIER_ASSERT(found != nullptr);
  return parse<std::int64_t>(name, found->back(), "an integer");
}

double Args::number(std::string_view name) const {
  const auto* found = find(name);
  ESPALIER_ASSERT(found != nullptr);
  const double value = parse<double>(name, found->back(), "a number");
  if (!std::isfinite(value)) {
    throw ConfigError("command line: " + std::string(name) + ": expected a finite number, found \"" + found->back() +
                      "\"");
  }
  return value;
}

}  // namespace espalier::app
