#include "commands/cli.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <sstream>

#include "espalier/error.hpp"
#include "espalier/version.hpp"

namespace espalier::app {

namespace {

constexpr const char* kProgramHelp =
    "Start here:\n"
    "  trainer doctor                                what this machine offers\n"
    "  trainer config explain configs/quickstart.toml  what a recipe means, and where each value came from\n"
    "  trainer train configs/quickstart.toml         train (mpiexec -n 2 trainer train ... on two ranks)\n"
    "  trainer COMMAND --help                        what a command does, with examples\n"
    "Exit codes: 0 done, 1 internal, 2 command line or recipe, 3 plugin, 4 file, 5 communication, 6 device, 7 "
    "numerics,\n"
    "75 stopped on request with the state saved (docs/exit-codes.md).";

/// A subcommand of the parser, with what it stands for. Groups ("config") have no command.
struct Node {
  CLI::App* parser = nullptr;
  const Command* command = nullptr;
  std::map<std::string, std::vector<std::string>> texts;
  std::map<std::string, bool> flags;
  std::vector<std::string> names;  ///< options, or subcommands of a group: for "did you mean"
};

bool is_option(const ArgSpec& spec) { return spec.name[0] == '-'; }

void add_arguments(Node& node) {
  for (const ArgSpec& spec : node.command->args) {
    CLI::Option* option = nullptr;
    if (spec.type == ArgType::flag) {
      option = node.parser->add_flag(spec.name, node.flags[spec.name], spec.help);
    } else {
      option = node.parser->add_option(spec.name, node.texts[spec.name], spec.help);
      option->expected(1)->allow_extra_args(false);
      if (spec.repeated) {
        option->take_all();
        if (!is_option(spec)) option->expected(1, 1 << 20)->allow_extra_args();
      } else {
        option->take_last();
      }
      std::string shown = spec.value_name[0] != '\0' ? spec.value_name : spec.type == ArgType::string ? "TEXT" : "N";
      if (spec.fallback != nullptr && spec.fallback[0] != '\0') shown += " [" + std::string(spec.fallback) + "]";
      if (spec.required) shown += " (required)";
      option->type_name(is_option(spec) ? shown : spec.required ? "(required)" : "");
    }
    node.names.emplace_back(spec.name);
  }
}

Node& node_for(std::map<std::string, Node>& nodes, const std::string& path, const Command* command) {
  const auto found = nodes.find(path);
  if (found != nodes.end()) return found->second;
  const auto space = path.rfind(' ');
  const std::string parent = space == std::string::npos ? "" : path.substr(0, space);
  const std::string word = space == std::string::npos ? path : path.substr(space + 1);
  Node& above = node_for(nodes, parent, nullptr);
  Node& node = nodes[path];
  node.parser = above.parser->add_subcommand(word, command != nullptr ? command->summary : "");
  node.parser->allow_extras()->fallthrough(false)->prefix_command(false);
  node.parser->set_help_flag("-h,--help", "print this help");
  above.names.push_back(word);
  if (command != nullptr) {
    node.command = command;
    node.parser->footer(command->lesson);
    add_arguments(node);
  }
  return node;
}

std::string did_you_mean(const std::string& asked, const std::vector<std::string>& known) {
  const std::string near = nearest_name(asked, known);
  return near.empty() ? "" : "; did you mean \"" + near + "\"?";
}

/// All that is wrong with what a command was given: unknown names, and what is missing.
void check(const std::string& path, Node& node, std::vector<std::string>& problems) {
  for (const std::string& extra : node.parser->remaining()) {
    const bool option = extra.size() > 1 && extra[0] == '-' && !std::isdigit(static_cast<unsigned char>(extra[1]));
    const std::string asked = extra.substr(0, extra.find('='));
    if (option) {
      problems.push_back("command line: " + asked + ": unknown option of \"" + path + "\"" +
                         did_you_mean(asked, node.names) + " (trainer " + path + " --help)");
    } else {
      problems.push_back("command line: \"" + extra + "\": unexpected argument of \"" + path + "\" (trainer " + path +
                         " --help)");
    }
  }
  for (const ArgSpec& spec : node.command->args) {
    const std::vector<std::string>& given = node.texts[spec.name];
    if (spec.required && given.empty()) {
      problems.push_back("command line: " + std::string(spec.name) + ": missing; " + spec.help);
    } else if (spec.required && std::find(given.begin(), given.end(), "") != given.end()) {
      problems.push_back("command line: " + std::string(spec.name) + ": is empty; " + spec.help);
    }
  }
}

Args args_of(Node& node) {
  Args args;
  for (const ArgSpec& spec : node.command->args) {
    args.declared[spec.name] = spec.type;
    if (spec.type == ArgType::flag) {
      if (node.flags[spec.name]) args.values[spec.name] = {"true"};
      continue;
    }
    std::vector<std::string> given = node.texts[spec.name];
    if (given.empty() && spec.fallback != nullptr) given = {spec.fallback};
    if (!given.empty()) args.values[spec.name] = std::move(given);
    if (spec.type == ArgType::integer && args.has(spec.name)) static_cast<void>(args.integer(spec.name));
    if (spec.type == ArgType::number && args.has(spec.name)) static_cast<void>(args.number(spec.name));
  }
  return args;
}

/// The innermost subcommand that was named.
std::string chosen_path(const CLI::App& root) {
  std::string path;
  const CLI::App* at = &root;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    path += (path.empty() ? "" : " ") + at->get_name();
  }
  return path;
}

[[noreturn]] void refuse(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) text += (text.empty() ? "" : "\n") + problem;
  throw ConfigError(text);
}

}  // namespace

int run_cli(const std::vector<std::string>& arguments, std::span<const Command* const> commands, std::ostream& out) {
  CLI::App root{"Espalier: trains BLOOM-class language models; a recipe names the plugins a run is made of.",
                "trainer"};
  root.set_version_flag("--version", "espalier " + std::string(version()));
  root.set_help_flag("-h,--help", "print this help");
  root.footer(kProgramHelp);
  root.allow_extras();
  std::map<std::string, Node> nodes;
  nodes[""].parser = &root;
  for (const Command* command : commands) node_for(nodes, command->name, command);
  for (auto& [path, node] : nodes) {
    if (node.command == nullptr && !path.empty())
      node.parser->description("see: " + CLI::detail::join(node.names, ", "));
  }

  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    // "--split=": the library would take the next argument for its value.
    const bool empty_value = argument.starts_with("--") && argument.ends_with('=') && argument.find('=') + 1 == argument.size();
    words.push_back(empty_value ? argument.substr(0, argument.size() - 1) : argument);
    if (empty_value) words.emplace_back();
  }
  try {
    root.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    const std::string asked = chosen_path(root);
    const auto last = asked.rfind(' ');
    const std::string above = asked.empty()               ? ""
                              : last == std::string::npos ? "trainer"
                                                          : "trainer " + asked.substr(0, last);
    out << nodes.at(asked).parser->help(above) << '\n';
    return 0;
  } catch (const CLI::CallForVersion&) {
    out << "espalier " << version() << '\n';
    return 0;
  } catch (const CLI::ParseError& error) {
    throw ConfigError("command line: " + std::string(error.what()) + " (trainer " + chosen_path(root) + " --help)");
  }

  const std::string path = chosen_path(root);
  Node& node = nodes.at(path);
  if (node.command == nullptr) {
    const auto extras = node.parser->remaining();
    if (extras.empty()) {
      refuse({"command line: name a command" + (path.empty() ? "" : " of \"" + path + "\"") +
              "; known: " + CLI::detail::join(node.names, ", ") + " (trainer --help)"});
    }
    refuse({"command line: " + extras.front() + ": unknown command" + (path.empty() ? "" : " of \"" + path + "\"") +
            did_you_mean(extras.front(), node.names) + " (trainer --help)"});
  }
  std::vector<std::string> problems;
  check(path, node, problems);
  if (!problems.empty()) refuse(problems);
  const Args args = args_of(node);
  if (node.command->speaks_once && launched_rank() > 0) return 0;
  return node.command->run(args);
}

}  // namespace espalier::app
