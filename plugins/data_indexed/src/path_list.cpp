#include "path_list.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "fail.hpp"

namespace espalier::data_indexed {
namespace {

struct Line {
  int number;
  std::string text;
};

bool blank(std::string_view text) { return text.find_first_not_of(" \t\r") == std::string_view::npos; }

/// The lists of a text: its lines, or what stands between double quotes.
std::vector<Line> lists_of(std::string_view text, std::string_view file) {
  std::vector<Line> lists;
  int number = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.find('"') == std::string_view::npos) {
      if (!blank(line)) {
        lists.push_back({number, std::string(line)});
      }
      continue;
    }
    for (;;) {
      const auto open = line.find('"');
      const auto close = open == std::string_view::npos ? open : line.find('"', open + 1);
      if (close == std::string_view::npos) {
        if (!blank(line)) {
          fail_config(std::string(file) + ":" + std::to_string(number),
                      "found \"" + std::string(line) + "\" outside of the double quotes around the lists");
        }
        break;
      }
      if (!blank(line.substr(0, open))) {
        fail_config(
            std::string(file) + ":" + std::to_string(number),
            "found \"" + std::string(line.substr(0, open)) + "\" outside of the double quotes around the lists");
      }
      lists.push_back({number, std::string(line.substr(open + 1, close - open - 1))});
      line.remove_prefix(close + 1);
    }
  }
  return lists;
}

PathList::Entry parse_entry(const std::string& text, const std::string& place) {
  std::istringstream words(text);
  std::string weight, range, path, more;
  words >> weight >> range >> path;
  if (path.empty() || words >> more) {
    fail_config(place, "\"" + text + "\" is not WEIGHT START:END PATH, as in \"0.3 0:0.95 corpus/fr\"");
  }
  const auto value = parse_share(weight);
  if (!value || !(*value > 0.0)) {
    fail_config(place, "the weight \"" + weight + "\" of " + path + " is not a positive number");
  }
  try {
    return {*value, parse_range(range), path};
  } catch (const ConfigError& error) {
    fail_config(place, error.what());
  }
}

}  // namespace

std::vector<PathList> parse_path_lists(std::string_view text, std::string_view file) {
  std::vector<PathList> lists;
  for (const Line& line : lists_of(text, file)) {
    const std::string place = std::string(file) + ":" + std::to_string(line.number);
    const auto colon = line.text.find(':');
    std::istringstream name_words(line.text.substr(0, colon));
    PathList list;
    std::string more;
    name_words >> list.name;
    if (colon == std::string::npos || list.name.empty() || name_words >> more) {
      fail_config(
          place, "\"" + line.text + "\" does not start with one name and a colon, as in \"train: 1 0:0.95 corpus/fr\"");
    }
    const auto same = [&](const PathList& other) { return other.name == list.name; };
    if (std::any_of(lists.begin(), lists.end(), same)) {
      fail_config(place, "the name \"" + list.name + "\" comes twice");
    }
    std::istringstream rest(line.text.substr(colon + 1));
    for (std::string entry; std::getline(rest, entry, ',');) {
      list.entries.push_back(parse_entry(entry, place));
    }
    if (list.entries.empty()) {
      fail_config(place, "list \"" + list.name + "\" names no path");
    }
    lists.push_back(std::move(list));
  }
  if (lists.empty()) {
    fail_config(file, "holds no list of paths; a line is NAME: WEIGHT START:END PATH, …");
  }
  return lists;
}

std::vector<PathList> read_path_lists(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  const bool opened = static_cast<bool>(stream);
  errno = opened ? 0 : errno;
  if (!opened || (!(text << stream.rdbuf()) && errno != 0)) {  // nothing copied is a failure, too, but of an empty file
    fail_io(file, "the list of paths cannot be read", errno);
  }
  return parse_path_lists(text.str(), file);
}

}  // namespace espalier::data_indexed
