// Where NCCL's host waits: connections are made when they are first needed.
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "nccl_launch.hpp"
#include "queue.hpp"

namespace fake::nccl {
namespace {

std::chrono::seconds patience() {
  const char* const text = std::getenv("ESPALIER_FAKE_NCCL_PATIENCE");
  return std::chrono::seconds(text != nullptr ? std::atoi(text) : 45);
}

constexpr int kSenderTag = 3, kReceiverTag = 4, kCollectiveTag = 5;

/// Says on a tag that this rank is there, and waits for the other's word on its tag.
class Handshakes {
 public:
  explicit Handshakes(ncclComm& comm) : comm_(comm) {}

  void with(int peer, int own_tag, int its_tag) {
    requests_.resize(requests_.size() + 2);
    MPI_Irecv(nullptr, 0, MPI_BYTE, peer, its_tag, comm_.mpi, &requests_[requests_.size() - 2]);
    MPI_Isend(nullptr, 0, MPI_BYTE, peer, own_tag, comm_.mpi, &requests_.back());
  }

  ncclResult_t wait() {
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      int all = 0;
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE);
      if (all != 0) return ncclSuccess;
      if (std::chrono::steady_clock::now() - begin > patience()) return ncclSystemError;
      progress();  // the device goes on meanwhile
      if (sticky_error() != cudaSuccess) return ncclUnhandledCudaError;
      sched_yield();
    }
  }

 private:
  ncclComm& comm_;
  std::vector<MPI_Request> requests_;
};

}  // namespace

ncclResult_t connect(ncclComm& comm, const std::vector<Call>& calls) {
  Handshakes handshakes(comm);
  bool any = false;
  for (const Call& call : calls) {
    if (call.kind < Kind::send) {
      if (!comm.connected.insert({static_cast<int>(call.kind), -1}).second) continue;
      const int tag = kCollectiveTag + static_cast<int>(call.kind);
      for (int peer = 0; peer < comm.size; ++peer) {
        if (peer != comm.rank) handshakes.with(peer, tag, tag);
      }
    } else {
      if (call.peer == comm.rank || !comm.connected.insert({static_cast<int>(call.kind), call.peer}).second) continue;
      const bool sends = call.kind == Kind::send;
      handshakes.with(call.peer, sends ? kSenderTag : kReceiverTag, sends ? kReceiverTag : kSenderTag);
    }
    any = true;
  }
  if (!any) return ncclSuccess;
  const ncclResult_t result = handshakes.wait();
  if (result == ncclSystemError) {
    std::fprintf(stderr,
                 "fake cuda: NCCL: communicator %d: the host of rank %d waits for a first call that nobody makes\n",
                 comm.number, comm.rank);
    comm.error = result;
  }
  return result;
}

}  // namespace fake::nccl
