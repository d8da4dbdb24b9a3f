#include "comm/mpi.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "comm/check.hpp"
#include "comm/combine.hpp"

namespace espalier::comm {
namespace {

// Tags above those of send and receive: a number for each collective in flight, and two phases in each.
constexpr int kFirstCollectiveTag = 32768;
constexpr std::uint32_t kCollectives = 8192;  // far more than can be open at once
constexpr int kTags = kFirstCollectiveTag + 2 * static_cast<int>(kCollectives);
// Below it one round in which every rank sends everything to every other beats two rounds of pieces.
constexpr std::size_t kSmallBytes = 64 << 10;

std::byte* offset(const View& view, std::int64_t elements) {
  return static_cast<std::byte*>(view.data) + static_cast<std::size_t>(elements) * size_of(view.dtype);
}

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiRuntime> runtime, MPI_Comm comm, std::string_view name)
    : runtime_(std::move(runtime)), comm_(comm), name_(name) {
  ESPALIER_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  ESPALIER_MPI(MPI_Comm_rank(comm_, &rank_));
  ESPALIER_MPI(MPI_Comm_size(comm_, &size_));
  pieces_.resize(static_cast<std::size_t>(size_));
}

MpiCommunicator::~MpiCommunicator() {
  if (open_ > 0) {
    abort(static_cast<int>(ExitCode::communication), "group " + name_ + ": destroyed with " + std::to_string(open_) +
                                                         " open operations; the network still owns their buffers");
  }
  MPI_Comm_free(&comm_);
}

Request MpiCommunicator::start(const Operation& op, Stream&) {
  const std::int64_t elements = check(op, name_, rank_, size_);
  if (size_ == 1) {
    copy(op.source.data, op.target.data, elements, op.source.dtype);
    return {};
  }
  Job& job = runtime_->open(*this, op);
  open_ += 1;
  job.elements = elements;
  const bool message = op.verb == Verb::send || op.verb == Verb::receive;
  job.tag = message ? op.tag : kFirstCollectiveTag + 2 * static_cast<int>(sequence_++ % kCollectives);
  advance(job);
  return runtime_->request_of(job);
}

bool MpiCommunicator::done(Request request) {
  runtime_->poll();
  const Job* job = runtime_->find(request);
  return job == nullptr || job->done;
}

void MpiCommunicator::finish(Request request, Stream&) {
  if (!request) return;
  Job* job = runtime_->find(request);
  if (job == nullptr || job->owner != this) {
    throw CommError("group " + name_ + ", rank " + std::to_string(rank_) +
                    ": a request of another group, or finished twice");
  }
  // Short waits stay on the core; longer ones leave it to the rank that everybody waits for.
  for (int turns = 0; !job->done; ++turns) {
    runtime_->poll();
    if (turns > 100) sched_yield();
  }
  runtime_->close(*job);
  open_ -= 1;
}

std::unique_ptr<Communicator> MpiCommunicator::split(int colour, int key, std::string_view name) {
  MPI_Comm part = MPI_COMM_NULL;
  ESPALIER_MPI(MPI_Comm_split(comm_, colour < 0 ? MPI_UNDEFINED : colour, key, &part));
  if (part == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiCommunicator>(runtime_, part, name);
}

void MpiCommunicator::abort(int code, std::string_view why) noexcept {
  int world_rank = 0, world_size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  print_last_words(world_rank, world_size, why);
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

void MpiCommunicator::send(Job& job, const std::byte* data, std::int64_t elements, int peer) {
  if (elements == 0) return;
  const auto bytes = elements * static_cast<std::int64_t>(size_of(job.operation.source.dtype));
  job.messages.push_back(MPI_REQUEST_NULL);
  ESPALIER_MPI(MPI_Isend_c(data, bytes, MPI_BYTE, peer, job.tag + job.phase, comm_, &job.messages.back()));
}

void MpiCommunicator::receive(Job& job, std::byte* data, std::int64_t elements, int peer) {
  if (elements == 0) return;
  const auto bytes = elements * static_cast<std::int64_t>(size_of(job.operation.target.dtype));
  job.messages.push_back(MPI_REQUEST_NULL);
  ESPALIER_MPI(MPI_Irecv_c(data, bytes, MPI_BYTE, peer, job.tag + job.phase, comm_, &job.messages.back()));
}

void MpiCommunicator::receive_pieces(Job& job, std::int64_t elements) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(job.operation.target.dtype);
  const std::size_t needed = bytes * static_cast<std::size_t>(size_ - 1);
  if (job.scratch.size() < needed) job.scratch.resize(needed);
  std::byte* place = job.scratch.data();
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    receive(job, place, elements, r);
    place += bytes;
  }
}

void MpiCommunicator::combine_pieces(Job& job, const std::byte* own, std::byte* dst, std::int64_t elements) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(job.operation.target.dtype);
  const std::byte* place = job.scratch.data();
  for (int r = 0; r < size_; ++r) {
    pieces_[static_cast<std::size_t>(r)] = r == rank_ ? own : place;
    if (r != rank_) place += bytes;
  }
  combine(job.operation.reduce, job.operation.target.dtype, pieces_, dst, elements);
}

void MpiCommunicator::advance(Job& job) {
  switch (job.operation.verb) {
    case Verb::all_reduce:
      if (job.operation.source.bytes() * static_cast<std::size_t>(size_) <= kSmallBytes &&
          job.elements <= runtime_->message_elements()) {
        return advance_small_all_reduce(job);
      }
      return advance_all_reduce(job);
    case Verb::reduce_scatter:
      return advance_reduce_scatter(job);
    case Verb::all_gather:
    case Verb::all_to_all:
      return advance_exchange(job);
    case Verb::broadcast:
      return advance_broadcast(job);
    case Verb::send:
    case Verb::receive:
      return advance_message(job);
    case Verb::barrier:
      if (job.phase++ == 1) {
        job.done = true;
      } else {
        job.messages.push_back(MPI_REQUEST_NULL);
        ESPALIER_MPI(MPI_Ibarrier(comm_, &job.messages.back()));
      }
      return;
  }
}

/// Everything to everyone, and every rank adds all of it.
void MpiCommunicator::advance_small_all_reduce(Job& job) {
  const Operation& op = job.operation;
  if (job.elements == 0 || job.phase == 1) {
    if (job.phase == 1) combine_pieces(job, offset(op.source, 0), offset(op.target, 0), job.elements);
    job.done = true;
    return;
  }
  receive_pieces(job, job.elements);
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) send(job, offset(op.source, 0), job.elements, r);
  }
  job.phase = 1;
}

/// Rounds of: pieces to their owners, each adds its own, sums back to all.
void MpiCommunicator::advance_all_reduce(Job& job) {
  const Operation& op = job.operation;
  const std::int64_t round = std::min(runtime_->round_elements(), job.elements - job.at);
  const auto border = [&](int r) { return job.at + round * r / size_; };
  const std::int64_t own = border(rank_), owned = border(rank_ + 1) - own;
  if (job.phase == 0) {
    receive_pieces(job, owned);
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) send(job, offset(op.source, border(r)), border(r + 1) - border(r), r);
    }
    job.phase = 1;
    return;
  }
  if (job.phase == 1 && !job.halfway) {
    // All pieces have left: the target, which may be the source, can be written.
    combine_pieces(job, offset(op.source, own), offset(op.target, own), owned);
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      receive(job, offset(op.target, border(r)), border(r + 1) - border(r), r);
      send(job, offset(op.target, own), owned, r);
    }
    job.halfway = true;
    return;
  }
  job.halfway = false;
  job.phase = 0;
  job.at += round;
  job.done = job.at == job.elements;
}

void MpiCommunicator::advance_reduce_scatter(Job& job) {
  const Operation& op = job.operation;
  const std::int64_t round =
      std::min(std::max<std::int64_t>(runtime_->round_elements() / size_, 1), job.elements - job.at);
  if (job.phase == 1) {
    combine_pieces(job, offset(op.source, rank_ * job.elements + job.at), offset(op.target, job.at), round);
    job.at += round;
    job.phase = 0;
  }
  job.done = job.at == job.elements;
  if (job.done) return;
  const std::int64_t next =
      std::min(std::max<std::int64_t>(runtime_->round_elements() / size_, 1), job.elements - job.at);
  receive_pieces(job, next);
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) send(job, offset(op.source, r * job.elements + job.at), next, r);
  }
  job.phase = 1;
}

/// All-gather sends the same to everyone, all-to-all a piece to each.
void MpiCommunicator::advance_exchange(Job& job) {
  const Operation& op = job.operation;
  const bool same = op.verb == Verb::all_gather;
  const auto source = [&](int r) { return offset(op.source, (same ? 0 : r * job.elements) + job.at); };
  if (job.at == job.elements) {
    job.done = true;
    return;
  }
  const std::int64_t round = std::min(runtime_->message_elements(), job.elements - job.at);
  for (int r = 0; r < size_; ++r) {
    std::byte* target = offset(op.target, r * job.elements + job.at);
    if (r == rank_) {
      copy(source(r), target, round, op.target.dtype);
    } else {
      receive(job, target, round, r);
      send(job, source(r), round, r);
    }
  }
  job.at += round;
}

/// A binomial tree: rank v, counted from the root, hears from v without its lowest bit and tells v plus each lower bit.
void MpiCommunicator::advance_broadcast(Job& job) {
  const Operation& op = job.operation;
  const int v = (rank_ - op.peer + size_) % size_;
  const auto rank_of = [&](int relative) { return (relative + op.peer) % size_; };
  if (job.at == job.elements) {
    job.done = true;
    return;
  }
  const std::int64_t round = std::min(runtime_->message_elements(), job.elements - job.at);
  std::byte* data = offset(op.target, job.at);
  if (v != 0 && !job.halfway) {
    receive(job, data, round, rank_of(v & (v - 1)));
    job.halfway = true;
    return;
  }
  for (int bit = 1; bit < size_ && (v & bit) == 0; bit *= 2) {
    if (v + bit < size_) send(job, data, round, rank_of(v + bit));
  }
  job.halfway = false;
  job.at += round;
}

/// All pieces at once: messages between two ranks with one tag keep their order only if both sides start them in order.
void MpiCommunicator::advance_message(Job& job) {
  const Operation& op = job.operation;
  const int peer = op.peer;
  if (job.at == job.elements) {
    job.done = true;
    return;
  }
  while (job.at < job.elements) {
    const std::int64_t round = std::min(runtime_->message_elements(), job.elements - job.at);
    if (op.verb == Verb::send) {
      send(job, offset(op.source, job.at), round, peer);
    } else {
      receive(job, offset(op.target, job.at), round, peer);
    }
    job.at += round;
  }
}

}  // namespace espalier::comm

namespace espalier {

std::unique_ptr<Communicator> make_world_communicator() {
  const Launch launch = detect_launch();
  std::shared_ptr<comm::MpiRuntime> runtime = comm::MpiRuntime::acquire();
  int size = 1, known = 0, *tag_limit = nullptr;
  ESPALIER_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  if (launch.launched_tasks > 1 && size == 1) {
    throw CommError(
        launch.launcher + " says that " + std::to_string(launch.launched_tasks) +
        " tasks were started, but MPI sees a world of 1: start with the mpiexec of the MPI this program is linked "
        "with (MPICH), or with srun --mpi=pmi2; for a single process unset " +
        launch.launcher);
  }
  ESPALIER_MPI(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_limit, &known));
  if (known == 0 || *tag_limit < comm::kTags) {
    throw CommError("MPI offers too few message tags: " + std::to_string(comm::kTags) + " are needed");
  }
  MPI_Comm world = MPI_COMM_NULL;
  ESPALIER_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  return std::make_unique<comm::MpiCommunicator>(std::move(runtime), world, "world");
}

}  // namespace espalier
