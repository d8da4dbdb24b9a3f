// Programs that tests start: output in a file, a time limit, signals to the program or to one rank of its job.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace espalier::testing_support {

/// How a program ended.
struct Ended {
  int code = 0;  ///< exit code, or 128 + the signal that killed it
  bool timed_out = false;
  double seconds = 0;  ///< since its start
  std::string output;  ///< standard output and error, as they came
};

class Process {
 public:
  /// @param environment  "NAME=value", over what this process has.
  /// @param output  file that gets standard output and error.
  Process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
          std::filesystem::path output);
  /// Kills what still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  /// Processes below this one (itself included) that run the program of that file name, by their PMI_RANK.
  std::vector<pid_t> ranks(const std::string& program) const;
  /// Waits for the end; after `limit` seconds kills the whole job.
  Ended wait(double limit);
  std::string output() const;

 private:
  void reap(int status);
  void kill_all() const;

  pid_t pid_ = -1;
  std::filesystem::path output_;
  double start_ = 0;
  bool ended_ = false;
  Ended result_;
};

/// Starts and waits.
Ended run_command(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                  const std::filesystem::path& output, double limit);

/// How often `part` is in `text`.
int count_of(const std::string& text, const std::string& part);

}  // namespace espalier::testing_support
