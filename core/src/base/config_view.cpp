// Reading a checked table.
#include "base/config_text.hpp"
#include "espalier/config.hpp"

namespace espalier {

namespace {

// A read that does not match the declaration is a bug of the component, but of a third party's perhaps: say which, do
// not abort.
[[noreturn]] void wrong_read(const std::string& key, std::string_view read, std::string_view found) {
  throw Error(ExitCode::internal, "option " + key + " is read as " + std::string(read) + ", but it " +
                                      std::string(found) +
                                      ": read options as they are declared, and ask has() for those without a default");
}

template <class Type>
const Type& get(const ConfigValue& value, const std::string& key, std::string_view read) {
  if (const auto* const data = std::get_if<Type>(&value.data)) return *data;
  wrong_read(key, read, "is declared as another type");
}

double get_number(const ConfigValue& value, const std::string& key, std::string_view read) {
  if (const auto* const integer = std::get_if<std::int64_t>(&value.data)) return static_cast<double>(*integer);
  return get<double>(value, key, read);
}

template <class Read>
auto get_array(const ConfigValue& value, const std::string& key, std::string_view read, Read&& read_one) {
  std::vector<std::decay_t<decltype(read_one(value, key, read))>> result;
  for (const ConfigValue& one : get<ConfigValue::Array>(value, key, read)) result.push_back(read_one(one, key, read));
  return result;
}

}  // namespace

const ConfigValue& ConfigView::at(std::string_view key) const {
  const ConfigValue* const value = table_->find(key);
  if (value == nullptr) wrong_read(config_join(path_, key), "a value", "is absent or not declared");
  return *value;
}

bool ConfigView::has(std::string_view key) const { return table_->find(key) != nullptr; }

bool ConfigView::given(std::string_view key) const {
  const ConfigValue* const value = table_->find(key);
  return value != nullptr && value->source.origin != "default";
}

bool ConfigView::boolean(std::string_view key) const {
  return get<bool>(at(key), config_join(path_, key), "a boolean");
}

std::int64_t ConfigView::integer(std::string_view key) const {
  return get<std::int64_t>(at(key), config_join(path_, key), "an integer");
}

double ConfigView::number(std::string_view key) const {
  return get_number(at(key), config_join(path_, key), "a number");
}

std::string ConfigView::string(std::string_view key) const {
  return get<std::string>(at(key), config_join(path_, key), "a string");
}

std::vector<std::int64_t> ConfigView::integers(std::string_view key) const {
  return get_array(at(key), config_join(path_, key), "an array of integers", get<std::int64_t>);
}

std::vector<double> ConfigView::numbers(std::string_view key) const {
  return get_array(at(key), config_join(path_, key), "an array of numbers", get_number);
}

std::vector<std::string> ConfigView::strings(std::string_view key) const {
  return get_array(at(key), config_join(path_, key), "an array of strings", get<std::string>);
}

ConfigView ConfigView::table(std::string_view key) const {
  const std::string name = config_join(path_, key);
  return {*get<std::shared_ptr<ConfigTable>>(at(key), name, "a table"), name};
}

std::vector<ConfigView> ConfigView::tables(std::string_view key) const {
  const std::string name = config_join(path_, key);
  std::vector<ConfigView> result;
  for (const ConfigValue& value : get<ConfigValue::Array>(at(key), name, "an array of tables")) {
    const auto& table = get<std::shared_ptr<ConfigTable>>(value, name, "an array of tables");
    result.emplace_back(*table, name + "[" + std::to_string(result.size()) + "]");
  }
  return result;
}

void ConfigView::fail(std::string_view key, std::string_view message) const {
  const ConfigValue* const value = key.empty() ? nullptr : table_->find(key);
  // A default has no place of its own: point at the table that lacks the key.
  const bool placed = value != nullptr && value->source.origin != "default";
  throw ConfigError(
      to_string({placed ? value->source : table_->source, config_join(path_, key), std::string(message)}));
}

}  // namespace espalier
