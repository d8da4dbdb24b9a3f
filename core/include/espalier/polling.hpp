#pragma once

#include "espalier/export.hpp"

namespace espalier {

/// What a thread that waits for MPI does in between: a device's queue may have to be moved on, or its library asked for
/// asynchronous errors, while the host meets other ranks. Called with `data` whenever requests of MPI are polled, by the
/// thread that communicates; it may start no communication of its own group's order, and may throw, which ends the wait.
/// One in a process; a null `work` takes it away.
ESPALIER_API void set_poll_hook(void (*work)(void* data), void* data);

}  // namespace espalier
