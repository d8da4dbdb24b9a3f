#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/device.hpp"
#include "espalier/error.hpp"
#include "espalier/export.hpp"
#include "espalier/reason.hpp"
#include "espalier/tensor.hpp"

namespace espalier {

/// A started operation: a value naming a slot of a fixed pool, so that starting one allocates nothing. The default is "none",
/// which is done and may be finished any number of times.
struct Request {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  ///< 0: none
  explicit operator bool() const { return generation != 0; }
};

enum class Verb : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, send, receive, barrier };

constexpr std::string_view name_of(Verb verb) {
  constexpr std::string_view kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                         "all_to_all", "send",           "receive",    "barrier"};
  return kNames[static_cast<std::size_t>(verb)];
}

/// How pieces are combined. `sum_rank_order` adds the ranks' pieces in rank order in FP32 (FP64 for f64) and rounds once, so every
/// rank gets the same bits and bucket borders change nothing. `sum_library` leaves order and rounding to the library.
enum class Reduce : std::uint8_t { sum_rank_order, sum_library, max };

/// One collective or point-to-point operation on contiguous typed buffers (row stride = cols).
///
/// | verb | source | target |
/// | all_reduce | n elements | n elements, may be the source |
/// | reduce_scatter | size · n | n: this rank's piece; may be source's own piece |
/// | all_gather | n | size · n, pieces in rank order; source may be target's own piece |
/// | broadcast | n on `peer` (the root) | n; source == target |
/// | all_to_all | size · n | size · n |
/// | send / receive | n / – | – / n; `peer` and `tag` must match |
/// | barrier | – | – |
/// Element counts are 64-bit; pieces beyond a library's limit are split inside.
struct Operation {
  Verb verb = Verb::barrier;
  View source;
  View target;
  Reduce reduce = Reduce::sum_rank_order;
  int peer = 0;  ///< root of a broadcast, other side of send and receive: rank in this group
  int tag = 0;   ///< 0 … 32767, send and receive only
};

/// A group of ranks: "rank" is always the rank in this group. All calls come from one thread, in the same order on every
/// rank of the group (send and receive excepted). MPI moves only while polled: finish() and done() poll all open requests of the
/// process, whatever their group. Destructors do not communicate; a communicator that dies with open requests aborts the job,
/// since the network still owns the buffers.
class ESPALIER_API Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator();

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "world", "tensor", "data", "pipeline", …: for messages and counters.
  virtual std::string_view name() const = 0;
  /// Begins when `after` gets there; returns at once. Buffers belong to the network until finished.
  /// @throws CommError naming group, rank, verb; the pool of requests being exhausted (256 open) is one.
  virtual Request start(const Operation& operation, Stream& after) = 0;
  /// Whether the operation is over; polls, also when asked about "none". Does not release the request.
  virtual bool done(Request request) = 0;
  /// Makes later work on `before` see the result. On MPI: polls all open requests and yields until this one is over.
  virtual void finish(Request request, Stream& before) = 0;
  /// Collective over this group: ranks with the same colour form a group, ordered by key; a negative colour joins none and
  /// gets null.
  virtual std::unique_ptr<Communicator> split(int colour, int key, std::string_view name) = 0;
  /// Ends all ranks of the job with `code`, printing `why` once with this rank.
  [[noreturn]] virtual void abort(int code, std::string_view why) noexcept = 0;

  // Helpers over start(); none is virtual.
  Request start_all_reduce(const View& buffer, Reduce reduce, Stream& after) {
    return start({Verb::all_reduce, buffer, buffer, reduce, 0, 0}, after);
  }
  Request start_reduce_scatter(const View& source, const View& target, Reduce reduce, Stream& after) {
    return start({Verb::reduce_scatter, source, target, reduce, 0, 0}, after);
  }
  Request start_all_gather(const View& source, const View& target, Stream& after) {
    return start({Verb::all_gather, source, target, Reduce::sum_rank_order, 0, 0}, after);
  }
  Request start_broadcast(const View& buffer, int root, Stream& after) {
    return start({Verb::broadcast, buffer, buffer, Reduce::sum_rank_order, root, 0}, after);
  }
  Request start_send(const View& source, int peer, int tag, Stream& after) {
    return start({Verb::send, source, {}, Reduce::sum_rank_order, peer, tag}, after);
  }
  Request start_receive(const View& target, int peer, int tag, Stream& after) {
    return start({Verb::receive, {}, target, Reduce::sum_rank_order, peer, tag}, after);
  }
  /// start and finish in one, on a stream.
  void run(const Operation& operation, Stream& stream) { finish(start(operation, stream), stream); }

 protected:
  Communicator() = default;
};

/// Forwards everything: base of counting, tracing and fault-injecting communicators.
class ESPALIER_API CommunicatorWrapper : public Communicator {
 public:
  explicit CommunicatorWrapper(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  ~CommunicatorWrapper() override;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  Request start(const Operation& operation, Stream& after) override { return inner_->start(operation, after); }
  bool done(Request request) override { return inner_->done(request); }
  void finish(Request request, Stream& before) override { inner_->finish(request, before); }
  std::unique_ptr<Communicator> split(int colour, int key, std::string_view name) override {
    return inner_->split(colour, key, name);
  }
  [[noreturn]] void abort(int code, std::string_view why) noexcept override {
    inner_->abort(code, why);
    assertion_failed("abort() returned", __FILE__, __LINE__);
  }

 protected:
  Communicator& inner() { return *inner_; }

 private:
  std::unique_ptr<Communicator> inner_;
};

/// A group of one. Copies where source and target differ; sends to itself are refused.
ESPALIER_API std::unique_ptr<Communicator> make_self_communicator(std::string_view name);

/// How this process was started, read from the environment before MPI_Init.
struct Launch {
  int local_rank = 0;
  int local_size = 1;       ///< ranks on this host, 1 when unknown
  int launched_tasks = 1;   ///< tasks the launcher says it started (PMI_SIZE, OMPI_COMM_WORLD_SIZE, SLURM_NTASKS, …), 1 when unknown
  std::string launcher;     ///< variable that said so, for messages
};
ESPALIER_API Launch detect_launch();

/// Initialises MPI (once a process) and returns the world. The object finalises MPI when it goes, after every other communicator.
/// Without a launcher it is a world of one.
/// @throws CommError when several tasks were launched but MPI sees a world of one (another MPI's mpiexec, srun without
///         --mpi=pmi2): the message names both numbers.
ESPALIER_API std::unique_ptr<Communicator> make_world_communicator();

/// Ends a phase outside training steps in the same way on all ranks: each rank says whether it failed (empty `problem`: no).
/// When any did, every rank throws Error with the exit code and text of the lowest failed rank, "rank N: " in front where size > 1.
/// Collective over the group.
ESPALIER_API void agree(Communicator& group, int exit_code, std::string_view problem);

/// Concatenates one string of each rank, in rank order, on all ranks. Collective; allocates; not for steps.
ESPALIER_API std::vector<std::string> gather_strings(Communicator& group, std::string_view text);

}  // namespace espalier
