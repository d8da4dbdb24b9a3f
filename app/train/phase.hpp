#pragma once

#include <chrono>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "espalier/communicator.hpp"
#include "espalier/error.hpp"
#include "session/lost_file.hpp"

namespace espalier::app {

/// An error that every rank of the world throws alike, so that each can end by itself.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Calls what throws alike on all ranks by itself, and marks its errors so.
template <class Body>
auto alike(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const AgreedError&) {
    throw;
  } catch (const Error& error) {
    throw AgreedError(error.exit_code(), error.what());
  }
}

struct Failure {
  int code = 0;
  std::string text;
};

/// Code and text of the exception in flight; call inside a catch block.
inline Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {static_cast<int>(error.exit_code()), error.what()};
  } catch (const std::bad_alloc&) {
    return {static_cast<int>(ExitCode::device), "out of memory; a smaller micro_batch_size or more ranks need less each"};
  } catch (const std::system_error& error) {
    return {static_cast<int>(ExitCode::io), error.what()};  // as run_program reports it
  } catch (const std::exception& error) {
    return {static_cast<int>(ExitCode::internal), std::string("internal error: ") + error.what()};
  } catch (...) {
    return {static_cast<int>(ExitCode::internal), "internal error: an exception of an unknown type"};
  }
}

/// Runs a phase outside of training steps (recipe, plugins, data, save): each rank works by itself, then all agree. When one failed,
/// all throw its error. `body` must not communicate after a point where one rank alone may throw.
template <class Body>
void phase(Communicator& world, Body&& body) {
  Failure failure;
  try {
    std::forward<Body>(body)();
  } catch (const AgreedError&) {
    throw;
  } catch (...) {
    failure = current_failure();
  }
  alike([&] { agree(world, failure.code, failure.text); });
}

/// Ends all ranks with the exception in flight, which this rank alone may have met; call inside a catch block.
[[noreturn]] inline void end_job(Communicator& world) {
  Failure failure = current_failure();
  const std::string own_name = "rank " + std::to_string(world.rank()) + ": ";  // abort() says it, too
  if (failure.text.starts_with(own_name)) failure.text.erase(0, own_name.size());
  // What all ranks met alike (an option, a file) is told by the first, whose abort ends the others while they wait.
  if (world.rank() > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  world.abort(failure.code, failure.text);
  assertion_failed("abort() returned", __FILE__, __LINE__);
}

/// Runs a part of a step. What one rank alone throws there ends the job on the spot: on the way out it would meet operations in
/// flight, whose buffers the network still owns.
template <class Body>
auto in_step(Communicator& world, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const AgreedError&) {
    throw;
  } catch (...) {
    if (world.size() == 1) throw;
    end_job(world);
  }
}

/// Runs the whole of a job on its world: what one rank alone throws ends all ranks (Communicator::abort); what all throw alike is
/// passed on.
template <class Body>
int run_on_world(Communicator& world, Body&& body) {
  const LostFileMessage lost_file(world.size() > 1 ? world.rank() : -1);
  try {
    return std::forward<Body>(body)();
  } catch (const AgreedError&) {
    throw;
  } catch (...) {
    if (world.size() == 1) throw;
    end_job(world);
  }
}

}  // namespace espalier::app
