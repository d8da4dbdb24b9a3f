#include "train/stop.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace espalier::app {
namespace {

std::atomic<int> g_received{0};
const char* g_said = nullptr;
// Handlers that were installed before ours, for the signal handler: plain data, written before ours is installed.
struct sigaction g_previous[NSIG];
bool g_hangup_ignored = false;

// Libraries below MPI put a handler on SIGHUP before main (UCX: more log). Whether the process was started with it ignored can only be seen
// before their constructors run, by the kernel's own call: nothing of a sanitizer is ready then, either.
__attribute__((no_sanitize("address", "undefined"))) void look_at_hangup(int, char**, char**) {
  unsigned long action[8] = {};  // the kernel's struct sigaction, whose first word is the handler
  if (::syscall(SYS_rt_sigaction, SIGHUP, nullptr, action, sizeof(unsigned long)) == 0)
    g_hangup_ignored = action[0] == reinterpret_cast<unsigned long>(SIG_IGN);
}
__attribute__((section(".preinit_array"), used)) void (*const g_before_constructors)(int, char**, char**) = look_at_hangup;

void on_signal(int number) {
  int expected = 0;
  const bool first = g_received.compare_exchange_strong(expected, number);
  if (!first && number == SIGINT) ::_exit(128 + SIGINT);
  if (first && g_said != nullptr) {
    const int before = errno;
    const ssize_t written = ::write(STDERR_FILENO, g_said, std::strlen(g_said));
    static_cast<void>(written);  // nobody listens: the stop comes all the same
    errno = before;
  }
  if (number == SIGHUP) return;  // the handler before is a library's, not the user's
  const auto previous = g_previous[number].sa_handler;
  if ((g_previous[number].sa_flags & SA_SIGINFO) == 0 && previous != SIG_DFL && previous != SIG_IGN && previous != nullptr) {
    previous(number);
  }
}

}  // namespace

StopSignals::StopSignals(const char* said) {
  g_received = 0;
  g_said = said;
  // Whoever read the log may be gone (a pager, a closed terminal): that must not end a run.
  ::signal(SIGPIPE, SIG_IGN);
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // a write or a lock in progress goes on; the step border looks at the flag
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], nullptr, &previous_[i]);
    g_previous[kSignals[i]] = previous_[i];
    action.sa_handler = kSignals[i] == SIGHUP && g_hangup_ignored ? SIG_IGN : on_signal;
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
}

int StopSignals::received() { return g_received; }

StopRules::StopRules(double minutes, std::int64_t interval) : seconds_(minutes * 60), interval_(interval) {}

StopReason StopRules::after_step(std::int64_t step) const {
  if (StopSignals::received() != 0) return StopReason::signal;
  if (seconds_ > 0) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    if (elapsed.count() >= seconds_) return StopReason::exit_duration;
  }
  return interval_ > 0 && step % interval_ == 0 ? StopReason::exit_interval : StopReason::none;
}

std::string to_string(StopReason reason) {
  switch (reason) {
    case StopReason::none: return "nothing";
    case StopReason::exit_interval: return "train.exit_interval";
    case StopReason::exit_duration: return "the time limit (train.exit_duration_in_mins)";
    case StopReason::records: return "a log that cannot be written";
    case StopReason::signal: {
      const int number = StopSignals::received();
      if (number == 0) return "a signal to another rank";
      // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's text of an unknown signal lies in memory of the calling thread
      return std::string("signal ") + std::to_string(number) + " (" + ::strsignal(number) + ")";
    }
  }
  return "";
}

}  // namespace espalier::app
