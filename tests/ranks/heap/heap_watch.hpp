#pragma once

#include <string>
#include <vector>

/// Counts the heap calls of one thread and says which library each came from: malloc and its family are replaced in the program that
/// links this, so calls of every library in the process pass through.
namespace espalier::heap_watch {

/// From here on calls of the calling thread are recorded. Nothing is allocated by the watch itself.
void arm();
void disarm();
/// Calls seen while armed, of any library.
int calls();
/// One line a recorded call whose first caller outside the C and C++ libraries is ours: library and symbol.
std::vector<std::string> own_calls();
/// The same for everybody else's, for the log.
std::vector<std::string> other_libraries();

}  // namespace espalier::heap_watch
