#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <string>

#include "commands/commands.hpp"
#include "config/open.hpp"
#include "config/sections.hpp"
#include "espalier/error.hpp"
#include "session/builtins.hpp"

namespace espalier::app {

namespace {

constexpr ArgSpec kPathArg{
    "--search-path", ArgType::string, "look here first (may be repeated)", false, nullptr, true, "DIR"};
constexpr ArgSpec kListArgs[] = {kPathArg};
constexpr ArgSpec kInspectArgs[] = {
    {"NAME", ArgType::string, "name of a plugin, or path of a library", true},
    {"--device", ArgType::string, "variant of the plugin: cpu or cuda", false, "cpu", false, "NAME"},
    kPathArg,
};

std::string kinds_of(const LoadedPlugin& plugin) {
  std::string text;
  for (const Factory& factory : plugin.factories()) {
    const std::string kind = factory.kind;
    if ((", " + text + ",").find(", " + kind + ",") == std::string::npos) text += (text.empty() ? "" : ", ") + kind;
  }
  return text;
}

int run_list(const Args& args) {
  const auto host = make_plugin_host("", args.strings("--search-path"));
  for (const PluginListing& one : host->list()) {
    const std::string version = one.version.empty() ? "?" : one.version;
    if (one.plugin != nullptr) {
      std::cout << fmt::format("{:<22} {:<9} {:<24} {}\n{:>57}{}\n", one.name, version, kinds_of(*one.plugin),
                               one.plugin->descriptor().summary, "", one.path.empty() ? "linked in" : one.path.string());
    } else {
      std::cout << fmt::format("{:<22} {:<9} refused: {}\n", one.name, version, one.problem);
    }
  }
  std::cout << "searched:";
  for (const auto& folder : host->search_path()) std::cout << ' ' << folder.string();
  std::cout << "\nbuilt in: backend \"reference\", data \"synthetic\", tokenizer \"bytes\", \"huggingface\", \"sentencepiece\", parallel.* \"none\"\n";
  return 0;
}

std::string_view table_of(std::string_view kind) {
  for (const Section& part : sections()) {
    if (part.kind != nullptr && kind == part.kind) return part.path;
  }
  return "";
}

std::string_view type_text(OptionType type) {
  constexpr std::string_view kNames[] = {"boolean", "integer", "number", "string", "integers",
                                         "numbers", "strings", "table",  "tables"};
  return kNames[static_cast<std::size_t>(type)];
}

void print_options(std::span<const OptionSpec> options, int depth) {
  for (const OptionSpec& option : options) {
    const std::string fallback = option.fallback == nullptr ? "required"
                                 : *option.fallback == '\0' ? "optional"
                                                            : option.fallback;
    std::string limits;
    if (option.choices != nullptr) limits = std::string(" one of ") + option.choices;
    if (std::isfinite(option.min)) limits += fmt::format(" >= {:g}", option.min);
    if (std::isfinite(option.max)) limits += fmt::format(" <= {:g}", option.max);
    std::cout << fmt::format("{:{}}{:<20} {:<9} {:<14} {}{}\n", "", depth, option.name, type_text(option.type),
                             fallback, option.help, limits.empty() ? "" : " (" + limits.substr(1) + ")");
    print_options({option.nested, option.nested_count}, depth + 2);
  }
}

int run_inspect(const Args& args) {
  const auto host = make_plugin_host("", args.strings("--search-path"));
  add_builtins(*host);
  const LoadedPlugin& plugin = host->load(args.string("NAME"), args.string("--device"));
  const PluginDescriptor& descriptor = plugin.descriptor();
  std::cout << fmt::format("{} {} ({})\n{}\nfile:  {}\nbuild: {}\n", descriptor.name, descriptor.version,
                           descriptor.licence, descriptor.summary,
                           plugin.path().empty() ? "built in" : plugin.path().string(), descriptor.abi_id);
  for (const Factory& factory : plugin.factories()) {
    const std::string_view table = table_of(factory.kind);
    std::cout << fmt::format("\n{} \"{}\"", factory.kind, factory.name);
    if (!table.empty())
      std::cout << fmt::format(", options of [{}]:\n  {:<20} {:<9} {:<14}", table, "key", "type", "default");
    std::cout << '\n';
    print_options({factory.options, factory.option_count}, 2);
  }
  return 0;
}

}  // namespace

const Command kPluginsList{"plugins list", "every plugin that is found: usable, or why it would be refused",
                           "Searches --search-path, ESPALIER_PLUGIN_PATH and the program's own folder.\n"
                           "  trainer plugins list --search-path ./my_plugins",
                           kListArgs, run_list, true};

const Command kPluginsInspect{"plugins inspect", "a plugin's description and the options it takes",
                              "  trainer plugins inspect optim_bf16", kInspectArgs, run_inspect, true};

}  // namespace espalier::app
