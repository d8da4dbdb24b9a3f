#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "espalier/export.hpp"

namespace espalier {

/// Reference to a callable; never allocates. Valid only during the call it is passed to.
template <class Signature>
class FunctionRef;
template <class R, class... A>
class FunctionRef<R(A...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& f)  // NOLINT: implicit on purpose, as in std::function_ref
      : object_(const_cast<void*>(static_cast<const void*>(&f))), call_([](void* object, A... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(static_cast<A&&>(args)...);
        }) {}
  R operator()(A... args) const { return call_(object_, static_cast<A&&>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, A...);
};

/// The one pool of a rank's compute threads. Kernels of every provider run on it.
///
/// Work is cut into the caller's fixed items, never by thread count, so that sums do not depend on the number of threads.
class ESPALIER_API ThreadPool {
 public:
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  virtual ~ThreadPool();

  /// Threads that work in `run`, the caller's included.
  virtual int size() const = 0;
  /// Calls body(i) for each i in [0, items), on all threads, in no fixed order; returns when all are done.
  /// Blocks; does not allocate; may not be nested. `body` must not throw.
  virtual void run(std::int64_t items, FunctionRef<void(std::int64_t)> body) = 0;

 protected:
  ThreadPool() = default;
};

ESPALIER_API std::unique_ptr<ThreadPool> make_thread_pool(int threads);

/// What the thread that calls ThreadPool::run does between items, at most every 0.2 ms: messages of MPI move only while
/// somebody asks. One in a process; null: nothing.
ESPALIER_API void set_between_items(void (*work)());

}  // namespace espalier
