#include "train/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "espalier/error.hpp"

namespace espalier::app {

RunLock::RunLock(const std::string& folder, const char* key) : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (folder_ < 0) throw IoError(folder, std::string("cannot open the folder (") + key + ")", errno);
  constexpr int kTries = 50;  // of 100 ms: the ranks of a job that was killed go within this time
  for (int tries = 0; ::flock(folder_, LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;
    if (tries < kTries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    ::close(folder_);
    throw IoError(folder + ": another process is training in this folder; stop it, or name another folder (" + key + ")");
  }
}

RunLock::~RunLock() { ::close(folder_); }

}  // namespace espalier::app
