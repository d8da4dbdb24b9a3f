#pragma once

#include <csignal>

namespace espalier::app {

/// While it lives, a mapped file that somebody cuts short, or that its disk no longer gives, ends the process with a message that names
/// the file, and with exit code 4; without it the kernel's bus error would. One object a process, made after MPI has started: MPI libraries
/// install handlers of their own.
class LostFileMessage {
 public:
  /// @param rank  to be named in the message; -1: none.
  explicit LostFileMessage(int rank);
  ~LostFileMessage();
  LostFileMessage(const LostFileMessage&) = delete;
  LostFileMessage& operator=(const LostFileMessage&) = delete;

 private:
  struct sigaction previous_ {};
};

}  // namespace espalier::app
