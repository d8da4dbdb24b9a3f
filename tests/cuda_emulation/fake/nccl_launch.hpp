#pragma once

#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// A communicator of the fake NCCL.
struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int number = 0;  ///< of this process, for messages
  int rank = 0, size = 1;
  std::vector<int> world;  ///< rank in MPI_COMM_WORLD of each rank
  std::uint64_t launched = 0, done = 0;
  ncclResult_t error = ncclSuccess;
  std::set<std::pair<int, int>> connected;  ///< kind of call, and the other side of a message
};

namespace fake::nccl {

enum class Kind : std::int32_t { all_reduce, reduce_scatter, all_gather, broadcast, send, receive };

/// One call of NCCL's interface.
struct Call {
  Kind kind = Kind::all_reduce;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::uint64_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;  ///< root, or the other side
};

/// What a rank tells another about a launch that concerns both, before any data: sends and receives as the teller sees
/// them.
struct Signature {
  std::int32_t kind, type, reduction, peer;
  std::uint64_t count;
};

std::size_t size_of(ncclDataType_t type);
std::string text_of(const Signature& signature, int rank, int size);
/// Joins the ranks' pieces as a ring does: each chunk starts at another rank, and every partial sum is rounded.
void ring_reduce(const std::vector<const std::byte*>& pieces, ncclDataType_t type, ncclRedOp_t reduction,
                 std::uint64_t count, std::byte* target);

/// What the host does before a launch, as NCCL does: the first message to a rank, the first one from it and the first
/// collective of a kind wait until the others make the call, too. The device goes on meanwhile.
/// @returns ncclSystemError when nobody comes.
ncclResult_t connect(ncclComm& comm, const std::vector<Call>& calls);

/// What goes to the device as one kernel: a call, or all calls of a group on one communicator. A state machine that a
/// stream's queue polls; nothing in it blocks.
class Launch {
 public:
  Launch(std::shared_ptr<ncclComm> comm, std::vector<Call> calls);
  /// One that failed half way leaves its messages, and their memory, to MPI.
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  /// @returns whether it is over. @throws std::runtime_error when the ranks do not fit together, or nobody comes.
  bool step();

 private:
  static constexpr std::size_t kMostSignatures = 64;
  struct Greeting {
    std::uint64_t launch;    ///< of all launches of the teller's process: the order in which its thread launched
    std::uint64_t sequence;  ///< of the communicator; collectives only
    std::uint32_t signatures;
    Signature list[kMostSignatures];
  };
  struct Transfer {
    int peer;
    std::vector<std::byte> bytes;
    std::byte* target;  ///< of a receive that is written where it belongs; null where it is a piece of a sum
  };

  bool collective() const { return calls_.front().kind < Kind::send; }
  std::vector<int> peers() const;
  std::string text() const;
  void greet();
  void compare();
  void begin();
  void finish();
  void send(int peer, const std::byte* data, std::uint64_t bytes);
  void receive(int peer, std::byte* target, std::uint64_t bytes);
  void begin_collective(const Call& call);
  bool passed();

  std::shared_ptr<ncclComm> comm_;
  std::vector<Call> calls_;
  std::uint64_t launch_, index_;
  int phase_ = 0;
  std::chrono::steady_clock::time_point since_{};
  std::vector<Greeting> mine_, theirs_;         // one a peer
  std::vector<std::vector<std::byte>> before_;  // the source of each call, as it was
  std::vector<Transfer> sent_, received_;
  std::vector<MPI_Request> requests_;
};

}  // namespace fake::nccl
