#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>

#include "commands/cli.hpp"
#include "espalier/error.hpp"
#include "train/phase.hpp"

namespace espalier::app {

int launched_rank() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  return -1;
}

namespace {

int report(ExitCode code, const std::string& message, bool agreed = false) {
  const int rank = launched_rank();
  // What agree() threw names its rank already, and a recipe or a command line is wrong in the same way on every rank:
  // the first rank speaks for all of them. Anything else is this rank's own.
  const bool shared = agreed || message.rfind("rank ", 0) == 0 || code == ExitCode::usage;
  if (rank > 0 && shared) return static_cast<int>(code);
  const std::string prefix = rank >= 0 && !shared ? "rank " + std::to_string(rank) + ": " : "";
  // One write, so that the lines of several ranks do not mix.
  std::cerr << "trainer: " + prefix + message + "\n" << std::flush;
  return static_cast<int>(code);
}

/// A standard stream that the caller has closed gets a file that fails as it would: the next one opened, a checkpoint or a socket of
/// MPI, must not take its number and with it what is printed.
void keep_standard_numbers() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) == -1 && errno == EBADF)
      static_cast<void>(::open("/dev/null", number == STDOUT_FILENO ? O_RDONLY : O_WRONLY));
  }
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  keep_standard_numbers();
  // A file that may not grow (ulimit -f) is an error of a write with a path, not an end without a word.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = run_cli({argv + 1, argv + argc}, all_commands(), std::cout);
    std::cout.flush();
    if (!std::cout) throw IoError("standard output: cannot be written; what was printed is not complete");
    return code;
  } catch (const AgreedError& error) {
    return report(error.exit_code(), error.what(), true);
  } catch (const Error& error) {
    return report(error.exit_code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(ExitCode::device, "out of memory; a smaller micro_batch_size or more ranks need less each");
  } catch (const std::system_error& error) {
    // Of the standard library and of what prints: a full disk, a folder that cannot be made. No bug of ours.
    return report(ExitCode::io, error.what());
  } catch (const std::exception& error) {
    return report(ExitCode::internal, std::string("internal error: ") + error.what() + "; please report this");
  } catch (...) {
    return report(ExitCode::internal, "internal error: an exception of an unknown type; please report this");
  }
}

}  // namespace espalier::app
