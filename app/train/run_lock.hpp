#pragma once

#include <string>

namespace espalier::app {

/// One process at a time writes into a run's folder, and into a folder of checkpoints: two would mix their logs and replace each other's checkpoints. The lock goes with the
/// process, also when it is killed. Where the file system knows no locks, there is none.
class RunLock {
 public:
  /// Waits a while for a run that is just ending. @throws IoError when it does not end.
  /// @param key  of the recipe: what names the folder.
  RunLock(const std::string& folder, const char* key);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int folder_ = -1;
};

}  // namespace espalier::app
