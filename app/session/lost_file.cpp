#include "session/lost_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

int g_rank = -1;

// Everything below runs inside a signal handler: system calls and the stack, no library that may hold a lock.

void say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Reads hexadecimal digits up to `end` and steps over it.
std::uintptr_t hexadecimal(std::string_view& text, char end) {
  std::uintptr_t value = 0;
  std::size_t at = 0;
  for (; at < text.size() && text[at] != end; ++at) {
    const char c = text[at];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0;
    value = value * 16 + static_cast<std::uintptr_t>(digit);
  }
  text.remove_prefix(std::min(text.size(), at + 1));
  return value;
}

/// One line of /proc/self/maps: the path when the address lies in it, "start-end perms offset dev inode   path".
std::string_view path_in(std::string_view line, std::uintptr_t address) {
  const std::uintptr_t start = hexadecimal(line, '-'), end = hexadecimal(line, ' ');
  const auto path = line.find('/');
  return address >= start && address < end && path != std::string_view::npos ? line.substr(path) : std::string_view();
}

void say_path_of(std::uintptr_t address) {
  std::array<char, 8192> buffer;  // more than the longest path
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  std::size_t have = 0;
  for (;;) {
    const ssize_t got = maps < 0 ? 0 : ::read(maps, buffer.data() + have, buffer.size() - have);
    if (got <= 0) break;
    have += static_cast<std::size_t>(got);
    std::size_t used = 0;
    for (std::size_t i = 0; i < have; ++i) {
      if (buffer[i] != '\n') continue;
      const std::string_view path = path_in({buffer.data() + used, i - used}, address);
      if (!path.empty()) {
        say(path);
        return;
      }
      used = i + 1;
    }
    std::memmove(buffer.data(), buffer.data() + used, have - used);
    have -= used;
  }
  say("a mapped file");
}

void on_bus_error(int number, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {
    ::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  say("trainer: ");
  if (g_rank >= 0) {
    std::array<char, 16> digits;
    std::size_t first = digits.size();
    unsigned rest = static_cast<unsigned>(g_rank);
    do digits[--first] = static_cast<char>('0' + rest % 10);
    while ((rest /= 10) != 0);
    say("rank ");
    say({digits.data() + first, digits.size() - first});
    say(": ");
  }
  say_path_of(reinterpret_cast<std::uintptr_t>(info->si_addr));
  say(": was cut short while it was in use, or its disk cannot be read; put it back and run the same command again\n");
  ::_exit(static_cast<int>(ExitCode::io));
}

}  // namespace

LostFileMessage::LostFileMessage(int rank) {
  g_rank = rank;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &previous_);
}

LostFileMessage::~LostFileMessage() { ::sigaction(SIGBUS, &previous_, nullptr); }

}  // namespace espalier::app
