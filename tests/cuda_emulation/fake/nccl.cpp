// NCCL's interface over MPI, for the fake device: what the plugin links in place of libnccl. Operations are queued on
// the fake runtime's streams and poll there.
#include <sched.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "memory.hpp"
#include "nccl_launch.hpp"
#include "queue.hpp"

namespace {

using namespace fake::nccl;

constexpr std::uint64_t kMagic = 0x4E43434C66616B65u;
constexpr int kRendezvousTag = 1000;
constexpr int kRendezvousTags = 20000;

struct Id {
  std::uint64_t magic;
  std::int32_t creator;  ///< rank in MPI_COMM_WORLD
  std::int32_t number;
};
static_assert(sizeof(Id) <= sizeof(ncclUniqueId));

/// Handles stay valid until they are destroyed; launches that are queued keep what they need.
std::map<ncclComm_t, std::shared_ptr<ncclComm>> communicators;
int made = 0;

struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  Call call;
};
int group_depth = 0;
std::vector<Pending> group;

void wait_for(MPI_Request request) {
  for (int over = 0; over == 0;) {
    MPI_Test(&request, &over, MPI_STATUS_IGNORE);
    if (over == 0) {
      fake::progress();
      sched_yield();
    }
  }
}

void receive(void* data, int bytes, int source, int tag) {
  MPI_Request request;
  MPI_Irecv(data, bytes, MPI_BYTE, source, tag, MPI_COMM_WORLD, &request);
  wait_for(request);
}
void send(const void* data, int bytes, int to, int tag) {
  MPI_Request request;
  MPI_Isend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
  wait_for(request);
}

/// The members find each other through whoever made the identifier.
std::vector<int> meet(const Id& id, int rank, int size) {
  int world_rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  std::vector<int> world(static_cast<std::size_t>(size));
  const int tag = kRendezvousTag + id.number % kRendezvousTags;
  const auto bytes = static_cast<int>(world.size() * sizeof(int));
  if (world_rank != id.creator) {
    const int own[] = {rank, world_rank};
    send(own, sizeof own, id.creator, tag);
    receive(world.data(), bytes, id.creator, tag);
    return world;
  }
  world[static_cast<std::size_t>(rank)] = world_rank;
  for (int r = 1; r < size; ++r) {
    int one[2];
    receive(one, sizeof one, MPI_ANY_SOURCE, tag);
    world[static_cast<std::size_t>(one[0])] = one[1];
  }
  for (const int other : world) {
    if (other != world_rank) send(world.data(), bytes, other, tag);
  }
  return world;
}

/// Read once, as NCCL does.
bool starts_in_order() {
  static const bool order = [] {
    const char* const text = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    return text != nullptr && std::atoi(text) != 0;
  }();
  return order;
}

void require_device(const void* data, std::uint64_t bytes, const char* what) {
  if (bytes == 0) return;
  if (fake::place_of(data) == fake::Place::pageable) {
    fake::violation(std::string(what) + ": an operand lies in host memory that the device cannot reach");
  }
  fake::check_range(data, bytes, what);
}

/// One launch for each communicator, in the order in which they were first named.
ncclResult_t launch_group() {
  std::vector<Pending> all;
  all.swap(group);
  while (!all.empty()) {
    const ncclComm_t comm = all.front().comm;
    const cudaStream_t stream = all.front().stream;
    std::vector<Call> calls;
    std::vector<Pending> others;
    for (Pending& one : all) {
      if (one.comm != comm) {
        others.push_back(std::move(one));
        continue;
      }
      if (one.stream != stream) fake::violation("ncclGroupEnd: calls on one communicator with different streams");
      if (one.call.kind < Kind::send && !calls.empty())
        fake::violation("ncclGroupEnd: a collective among other calls is not faked");
      calls.push_back(one.call);
    }
    if (const ncclResult_t result = connect(*comm, calls); result != ncclSuccess) return result;
    auto launch = std::make_shared<Launch>(communicators.at(comm), std::move(calls));
    fake::enqueue(stream, "NCCL", [launch] { return launch->step(); });
    all = std::move(others);
  }
  return ncclSuccess;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, const Call& call, std::uint64_t sources, std::uint64_t targets,
                 const char* what) {
  const auto known = communicators.find(comm);
  if (known == communicators.end()) return ncclInvalidArgument;
  if (comm->error != ncclSuccess) return comm->error;
  if (fake::sticky_error() != cudaSuccess) return ncclUnhandledCudaError;
  const std::uint64_t bytes = call.count * size_of(call.type);
  require_device(call.source, sources * bytes, what);
  require_device(call.target, targets * bytes, what);
  if (call.count == 0) return ncclSuccess;
  group.push_back({comm, stream, call});
  return group_depth == 0 ? launch_group() : ncclSuccess;
}

const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : result == ncclInvalidUsage ? "invalid usage" : "fake NCCL error";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  Id own{kMagic, 0, made++};
  MPI_Comm_rank(MPI_COMM_WORLD, &own.creator);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &own, sizeof own);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId unique, int rank) {
  Id id{};
  std::memcpy(&id, &unique, sizeof id);
  if (id.magic != kMagic || rank < 0 || rank >= size) return ncclInvalidArgument;
  if (!communicators.empty() && !starts_in_order()) {
    fake::violation(
        "ncclCommInitRank: two communicators on a device, whose kernels start in any order without "
        "NCCL_LAUNCH_ORDER_IMPLICIT=1: they may wait for each other in a circle");
  }
  auto made_here = std::make_shared<ncclComm>();
  made_here->number = static_cast<int>(communicators.size()) + 1;
  made_here->rank = rank;
  made_here->size = size;
  made_here->world = meet(id, rank, size);
  MPI_Group whole = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &whole);
  MPI_Group_incl(whole, size, made_here->world.data(), &members);
  MPI_Comm_create_group(MPI_COMM_WORLD, members, kRendezvousTag + id.number % kRendezvousTags, &made_here->mpi);
  MPI_Group_free(&members);
  MPI_Group_free(&whole);
  *comm = made_here.get();
  communicators[*comm] = std::move(made_here);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const auto known = communicators.find(comm);
  if (known == communicators.end()) return ncclInvalidArgument;
  if (comm->done != comm->launched) {
    fake::violation("ncclCommDestroy: communicator " + std::to_string(comm->number) + " has " +
                    std::to_string(comm->launched - comm->done) + " operations that are not over");
  }
  MPI_Comm_free(&comm->mpi);
  communicators.erase(known);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return communicators.erase(comm) == 1 ? ncclSuccess : ncclInvalidArgument;
}

/// Time passes while the host asks.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (fake::running().empty()) fake::progress();
  *error = comm->error;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  return --group_depth == 0 ? launch_group() : ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* source, void* target, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Kind::all_reduce, bytes(source), bytes(target), count, type, reduction, -1}, 1, 1,
             "ncclAllReduce");
}
ncclResult_t ncclReduceScatter(const void* source, void* target, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  const auto size = static_cast<std::uint64_t>(comm->size);
  return add(comm, stream, {Kind::reduce_scatter, bytes(source), bytes(target), count, type, reduction, -1}, size, 1,
             "ncclReduceScatter");
}
ncclResult_t ncclAllGather(const void* source, void* target, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const auto size = static_cast<std::uint64_t>(comm->size);
  return add(comm, stream, {Kind::all_gather, bytes(source), bytes(target), count, type, ncclSum, -1}, 1, size,
             "ncclAllGather");
}
ncclResult_t ncclBroadcast(const void* source, void* target, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Kind::broadcast, bytes(source), bytes(target), count, type, ncclSum, root}, 1, 1,
             "ncclBroadcast");
}
ncclResult_t ncclSend(const void* source, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, {Kind::send, bytes(source), nullptr, count, type, ncclSum, peer}, 1, 0, "ncclSend");
}
ncclResult_t ncclRecv(void* target, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Kind::receive, nullptr, bytes(target), count, type, ncclSum, peer}, 0, 1, "ncclRecv");
}

}  // extern "C"
