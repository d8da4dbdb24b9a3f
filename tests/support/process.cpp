#include "support/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace espalier::testing_support {
namespace {

namespace fs = std::filesystem;

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void nap() {
  constexpr timespec kNap{0, 2'000'000};
  nanosleep(&kNap, nullptr);
}

/// Whole text of a file; "" when it cannot be read. No stream: reading of /proc fails in the middle when a process
/// ends.
std::string read_file(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  std::string text;
  char block[4096];
  for (ssize_t got = 0; (got = ::read(file, block, sizeof block)) > 0;)
    text.append(block, static_cast<std::size_t>(got));
  ::close(file);
  return text;
}

/// Parent of every process there is.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> result;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = read_file(entry.path() / "stat");
    const auto after_name = stat.rfind(')');
    if (after_name == std::string::npos || after_name + 4 >= stat.size()) continue;
    result[std::stoi(name)] = std::atoi(stat.c_str() + after_name + 4);
  }
  return result;
}

std::vector<pid_t> family(pid_t root) {
  const auto all = parents();
  std::vector<pid_t> members = {root};
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (const auto& [child, parent] : all) {
      if (parent == members[i]) members.push_back(child);
    }
  }
  return members;
}

int rank_of(pid_t pid) {
  const std::string environment = read_file("/proc/" + std::to_string(pid) + "/environ");
  const std::string key = std::string(1, '\0') + "PMI_RANK=";
  const auto at = (std::string(1, '\0') + environment).find(key);
  return at == std::string::npos ? 0 : std::atoi(environment.c_str() + at + key.size() - 1);
}

}  // namespace

Process::Process(const std::vector<std::string>& command, const std::vector<std::string>& environment, fs::path output)
    : output_(std::move(output)), start_(now()) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::vector<std::pair<std::string, std::string>> variables;
  for (const std::string& text : environment)
    variables.emplace_back(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
  const std::string file = output_.string();
  pid_ = fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ > 0) return;
  setpgid(0, 0);
  const int out = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  const int in = ::open("/dev/null", O_RDONLY);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  // The test itself may run under a launcher; what it starts is a job of its own.
  // NOLINTBEGIN(concurrency-mt-unsafe): a forked child has one thread
  for (const char* name : {"PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "ESPALIER_PLUGIN_PATH", "ESPALIER_SET"})
    unsetenv(name);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  // NOLINTEND(concurrency-mt-unsafe)
  execvp(arguments[0], arguments.data());
  _exit(127);
}

Process::~Process() {
  if (!ended_) wait(0);
}

void Process::reap(int status) {
  ended_ = true;
  result_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result_.seconds = now() - start_;
  result_.output = output();
}

bool Process::running() {
  if (ended_) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) reap(status);
  return !ended_;
}

void Process::kill_all() const {
  for (const pid_t member : family(pid_)) ::kill(member, SIGKILL);
}

std::vector<pid_t> Process::ranks(const std::string& program) const {
  std::vector<std::pair<int, pid_t>> found;
  std::error_code error;
  for (const pid_t member : family(pid_)) {
    const fs::path image = fs::read_symlink("/proc/" + std::to_string(member) + "/exe", error);
    if (!error && image.filename() == program) found.emplace_back(rank_of(member), member);
  }
  std::sort(found.begin(), found.end());
  std::vector<pid_t> result;
  for (const auto& [rank, member] : found) result.push_back(member);
  return result;
}

Ended Process::wait(double limit) {
  while (running()) {
    if (now() - start_ > limit) {
      result_.timed_out = true;
      kill_all();
      int status = 0;
      waitpid(pid_, &status, 0);
      reap(status);
      break;
    }
    nap();
  }
  return result_;
}

std::string Process::output() const { return read_file(output_); }

Ended run_command(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                  const fs::path& output, double limit) {
  Process process(command, environment, output);
  return process.wait(limit);
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

}  // namespace espalier::testing_support
