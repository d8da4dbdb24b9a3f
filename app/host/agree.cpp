// Check 9: all ranks loaded the same.
#include <algorithm>

#include "espalier/communicator.hpp"
#include "espalier/error.hpp"
#include "host/plugin_host.hpp"

namespace espalier::app {

namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

void PluginHost::agree_on(Communicator& world) {
  // One rank's word: its failure ("!" + exit code + text) or what it reached.
  std::string word;
  if (!failure_.empty()) {
    word = "!" + std::to_string(failure_code_) + " " + failure_;
  } else {
    for (const Record& record : records_) word += "plugin \"" + record.name + "\" " + record.facts + "\n";
  }
  const std::vector<std::string> words = gather_strings(world, word);
  const auto failed = [](const std::string& one) { return one.starts_with('!'); };
  const bool any_failed = std::any_of(words.begin(), words.end(), failed);
  records_.clear();
  failure_.clear();
  failure_code_ = 0;

  if (any_failed) {
    const auto lowest = std::find_if(words.begin(), words.end(), failed);
    const bool everywhere =
        std::all_of(words.begin(), words.end(), [&](const std::string& one) { return one == *lowest; });
    const auto space = lowest->find(' ');
    const int code = std::stoi(lowest->substr(1, space - 1));
    const std::string rank = "rank " + std::to_string(lowest - words.begin()) + ": ";
    const std::string text = (everywhere ? "" : rank) + lowest->substr(space + 1);
    if (code == static_cast<int>(ExitCode::plugin)) throw PluginError(text);
    throw Error(static_cast<ExitCode>(code), text);
  }
  for (std::size_t rank = 1; rank < words.size(); ++rank) {
    if (words[rank] == words[0]) continue;
    const auto here = lines_of(words[0]);
    const auto there = lines_of(words[rank]);
    std::size_t line = 0;
    while (line < here.size() && line < there.size() && here[line] == there[line]) ++line;
    throw PluginError("agree: the ranks loaded different plugins: rank " + std::to_string(rank) + " has " +
                      std::string(line < there.size() ? there[line] : "nothing more") + "; rank 0 has " +
                      std::string(line < here.size() ? here[line] : "nothing more") +
                      "; install the same files on every host");
  }
}

}  // namespace espalier::app
