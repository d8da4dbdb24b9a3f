#include "nccl_communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <vector>

#include "check.hpp"
#include "combine.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

constexpr int kOldestNccl = 22600;  // the first that starts the operations of several groups in the host's order
constexpr std::size_t kScratchBytes = std::size_t{16} << 20;
// Below it one exchange of everything beats two of pieces.
constexpr std::size_t kSmallBytes = std::size_t{64} << 10;

class HostStream final : public Stream {};

/// All of this process: few, and made and destroyed by one thread.
std::vector<const NcclCommunicator*>& live() {
  static std::vector<const NcclCommunicator*> all;
  return all;
}

void check_nccl(ncclResult_t status, std::string_view group, const char* what) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  const char* const last = ncclGetLastError(nullptr);
  std::string text = "group " + std::string(group) + ": " + what + ": " + ncclGetErrorString(status);
  if (last != nullptr && *last != '\0') text += ": " + std::string(last);
  throw CommError(text + " (NCCL_DEBUG=INFO says more)");
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::f64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::u8:
      return ncclUint8;
  }
  return ncclUint8;
}

std::byte* offset(const View& view, std::int64_t elements) {
  return static_cast<std::byte*>(view.data) + static_cast<std::size_t>(elements) * size_of(view.dtype);
}

/// The GPU in use, as no other in the cluster is called.
std::string name_of_gpu() {
  int index = 0;
  check(cudaGetDevice(&index), "current GPU");
  char bus[32] = {}, host[256] = {};
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, index), "PCI address of a GPU");
  ::gethostname(host, sizeof host - 1);
  return std::string(bus) + " of host " + host;
}

/// NCCL cannot have two ranks on one GPU, and says so in a way that helps nobody. Same answer on all ranks.
void require_own_gpus(Communicator& group) {
  const std::vector<std::string> names = gather_strings(group, name_of_gpu());
  for (std::size_t r = 1; r < names.size(); ++r) {
    const auto twin = std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(r), names[r]);
    if (twin == names.begin() + static_cast<std::ptrdiff_t>(r)) continue;
    throw DeviceError("group " + std::string(group.name()) + ": ranks " + std::to_string(twin - names.begin()) +
                      " and " + std::to_string(r) + " both use GPU " + names[r] +
                      ": start at most one rank a GPU, and look at backend.index and CUDA_VISIBLE_DEVICES");
  }
}

/// For a lifetime: what is called goes out as one operation of NCCL.
class NcclGroup {
 public:
  explicit NcclGroup(std::string_view group) : group_(group) { check_nccl(ncclGroupStart(), group_, "ncclGroupStart"); }
  ~NcclGroup() {
    if (!ended_) ncclGroupEnd();
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  void end() {
    ended_ = true;
    check_nccl(ncclGroupEnd(), group_, "ncclGroupEnd");
  }

 private:
  std::string_view group_;
  bool ended_ = false;
};

}  // namespace

void poll_nccl() {
  for (const NcclCommunicator* communicator : live()) communicator->check_async();
}

NcclCommunicator::NcclCommunicator(Device& device, std::unique_ptr<Communicator> inner, bool always)
    : device_(device), inner_(std::move(inner)), rank_(inner_->rank()), size_(inner_->size()), always_(always) {
  try {
    if (size_ > 1) require_own_gpus(*inner_);
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "stream of a group");
    for (Slot& slot : slots_)
      check(cudaEventCreateWithFlags(&slot.event, cudaEventDisableTiming), "event of a request");
    if (size_ > 1 || always_) {
      scratch_ = device_.reserve(kScratchBytes, "communication");
      connect();
    }
  } catch (...) {
    release();
    throw;
  }
  live().push_back(this);
}

/// The first rank makes an identifier, and MPI brings it to the others.
void NcclCommunicator::connect() {
  ncclUniqueId id{};
  std::string problem;
  int version = 0;
  ncclGetVersion(&version);
  if (version < kOldestNccl) {
    problem = "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
              " is loaded, and several groups on one GPU need 2.26 or later: look at LD_LIBRARY_PATH";
  } else if (rank_ == 0) {
    const ncclResult_t status = ncclGetUniqueId(&id);
    if (status != ncclSuccess)
      problem = "group " + std::string(name()) + ": ncclGetUniqueId: " + ncclGetErrorString(status);
  }
  agree(*inner_, static_cast<int>(ExitCode::communication), problem);
  HostStream host;
  inner_->run({Verb::broadcast, View::vector(&id, sizeof id, DType::u8), View::vector(&id, sizeof id, DType::u8)},
              host);
  check_nccl(ncclCommInitRank(&comm_, size_, id, rank_), name(), "ncclCommInitRank");
}

void NcclCommunicator::release() noexcept {
  if (comm_ != nullptr) {
    // Where something went wrong other ranks may never come to meet this one.
    ncclResult_t status = ncclSuccess;
    const bool sound = open_ == 0 && std::uncaught_exceptions() == 0 && cudaStreamSynchronize(stream_) == cudaSuccess &&
                       ncclCommGetAsyncError(comm_, &status) == ncclSuccess && status == ncclSuccess;
    if (sound) {
      ncclCommDestroy(comm_);
    } else {
      ncclCommAbort(comm_);
    }
    comm_ = nullptr;
  }
  for (Slot& slot : slots_) {
    if (slot.event != nullptr) cudaEventDestroy(slot.event);
    slot.event = nullptr;
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  stream_ = nullptr;
}

NcclCommunicator::~NcclCommunicator() {
  std::erase(live(), this);
  release();
}

void NcclCommunicator::fail(const Operation& operation, std::string_view what) const {
  throw CommError("group " + std::string(name()) + ", rank " + std::to_string(rank_) + " of " + std::to_string(size_) +
                  ": " + std::string(name_of(operation.verb)) + ": " + std::string(what));
}

void NcclCommunicator::check_async() const {
  if (comm_ == nullptr) return;
  ncclResult_t status = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm_, &status), name(), "ncclCommGetAsyncError");
  check_nccl(status, name(), "an operation under way failed");
}

/// Elements of a piece.
std::int64_t NcclCommunicator::check_shapes(const Operation& op) const {
  if (op.verb == Verb::barrier) return 0;
  const bool sends = op.verb != Verb::receive, receives = op.verb != Verb::send;
  const std::int64_t n = op.verb == Verb::reduce_scatter || op.verb == Verb::receive ? op.target.elements()
                         : op.verb == Verb::all_to_all                               ? op.source.elements() / size_
                                                                                     : op.source.elements();
  const bool many_sources = op.verb == Verb::reduce_scatter || op.verb == Verb::all_to_all;
  const bool many_targets = op.verb == Verb::all_gather || op.verb == Verb::all_to_all;
  const auto require = [&](const View& view, std::int64_t elements, const char* side) {
    if (!view.contiguous() || view.elements() != elements || (view.data == nullptr && elements != 0)) {
      fail(op, std::string(side) + " has another number of elements than the group needs, or gaps between its rows");
    }
    if (elements == 0) return;
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, view.data), "kind of a pointer");
    if (attributes.type == cudaMemoryTypeUnregistered) {
      fail(op, std::string(side) + " is host memory: it belongs to the communicator of host memory");
    }
  };
  if (sends) require(op.source, many_sources ? n * size_ : n, "source");
  if (receives) require(op.target, many_targets ? n * size_ : n, "target");
  if (sends && receives && op.source.dtype != op.target.dtype) fail(op, "source and target differ in dtype");
  const bool message = op.verb == Verb::send || op.verb == Verb::receive;
  if ((message || op.verb == Verb::broadcast) && (op.peer < 0 || op.peer >= size_)) {
    fail(op, "peer is not a rank of the group");
  }
  if (message && op.peer == rank_) fail(op, "a rank cannot exchange messages with itself");
  if (op.verb == Verb::broadcast && op.source.data != op.target.data) {
    fail(op, "source and target must be the same place");
  }
  return n;
}

Request NcclCommunicator::start(const Operation& operation, Stream& after) {
  auto* const lane = dynamic_cast<CudaStream*>(&after);
  if (lane == nullptr) fail(operation, "the stream is not one of this device");
  const std::int64_t elements = check_shapes(operation);
  std::size_t tried = 0;
  while (tried < kSlots && slots_[next_slot_ % kSlots].open) {
    next_slot_ += 1;
    tried += 1;
  }
  if (tried == kSlots) fail(operation, std::to_string(kSlots) + " operations are open already: finish some");
  const auto number = static_cast<std::uint32_t>(next_slot_++ % kSlots);
  Slot& slot = slots_[number];
  check(cudaEventRecord(slot.event, lane->handle()), "event of a request");
  check(cudaStreamWaitEvent(stream_, slot.event, 0), "event of a request");
  launch(operation, elements);
  check(cudaEventRecord(slot.event, stream_), "event of a request");
  slot.open = true;
  slot.generation = slot.generation == 0xffffffff ? 1 : slot.generation + 1;
  open_ += 1;
  return {number, slot.generation};
}

NcclCommunicator::Slot* NcclCommunicator::find(Request request) {
  if (!request || request.slot >= kSlots) return nullptr;
  Slot& slot = slots_[request.slot];
  return slot.open && slot.generation == request.generation ? &slot : nullptr;
}

bool NcclCommunicator::done(Request request) {
  check_async();
  const Slot* const slot = find(request);
  if (slot == nullptr) return true;
  const cudaError_t status = cudaEventQuery(slot->event);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // it is no error, but stays behind as one
    return false;
  }
  check(status, "an operation of a group");
  return true;
}

void NcclCommunicator::finish(Request request, Stream& before) {
  if (!request) return;
  Slot* const slot = find(request);
  if (slot == nullptr) {
    throw CommError("group " + std::string(name()) + ", rank " + std::to_string(rank_) +
                    ": a request of another group, or finished twice");
  }
  auto* const lane = dynamic_cast<CudaStream*>(&before);
  if (lane == nullptr) {
    throw CommError("group " + std::string(name()) + ", rank " + std::to_string(rank_) +
                    ": a request is finished on a stream that is not one of this device");
  }
  check(cudaStreamWaitEvent(lane->handle(), slot->event, 0), "event of a request");
  slot->open = false;
  open_ -= 1;
}

std::unique_ptr<Communicator> NcclCommunicator::split(int colour, int key, std::string_view name) {
  auto part = inner_->split(colour, key, name);
  return part == nullptr ? nullptr : std::make_unique<NcclCommunicator>(device_, std::move(part), always_);
}

void NcclCommunicator::abort(int code, std::string_view why) noexcept {
  if (comm_ != nullptr) ncclCommAbort(comm_);
  comm_ = nullptr;
  inner_->abort(code, why);
  assertion_failed("abort() returned", __FILE__, __LINE__);
}

void NcclCommunicator::launch(const Operation& op, std::int64_t elements) {
  if (comm_ == nullptr) {
    if (op.verb == Verb::barrier || op.source.data == op.target.data || elements == 0) return;
    check(cudaMemcpyAsync(op.target.data, op.source.data, op.target.bytes(), cudaMemcpyDefault, stream_),
          "copy in a group of one");
    return;
  }
  const bool library = op.reduce == Reduce::sum_library || size_ == 1;  // there is one order of one piece
  switch (op.verb) {
    case Verb::all_reduce:
      return library ? launch_library(op, elements) : all_reduce(op, elements);
    case Verb::reduce_scatter:
      return library ? launch_library(op, elements) : reduce_scatter(op, elements);
    case Verb::all_to_all:
      return all_to_all(op, elements);
    default:
      return launch_library(op, elements);
  }
}

void NcclCommunicator::launch_library(const Operation& op, std::int64_t elements) {
  const auto count = static_cast<std::size_t>(elements);
  const ncclDataType_t type = type_of(op.verb == Verb::receive ? op.target.dtype : op.source.dtype);
  if (op.verb == Verb::barrier) {  // a sum of nothing in particular
    return check_nccl(ncclAllReduce(scratch_.data(), scratch_.data(), 1, ncclInt32, ncclSum, comm_, stream_), name(),
                      "ncclAllReduce (barrier)");
  }
  if (count == 0) return;
  switch (op.verb) {
    case Verb::all_reduce:
      return check_nccl(ncclAllReduce(op.source.data, op.target.data, count, type, ncclSum, comm_, stream_), name(),
                        "ncclAllReduce");
    case Verb::reduce_scatter:
      return check_nccl(ncclReduceScatter(op.source.data, op.target.data, count, type, ncclSum, comm_, stream_), name(),
                        "ncclReduceScatter");
    case Verb::all_gather:
      return check_nccl(ncclAllGather(op.source.data, op.target.data, count, type, comm_, stream_), name(),
                        "ncclAllGather");
    case Verb::broadcast:
      return check_nccl(ncclBroadcast(op.source.data, op.target.data, count, type, op.peer, comm_, stream_), name(),
                        "ncclBroadcast");
    case Verb::send:
      return check_nccl(ncclSend(op.source.data, count, type, op.peer, comm_, stream_), name(), "ncclSend");
    case Verb::receive:
      return check_nccl(ncclRecv(op.target.data, count, type, op.peer, comm_, stream_), name(), "ncclRecv");
    case Verb::all_to_all:
    case Verb::barrier:
      return;
  }
}

std::int64_t NcclCommunicator::most_elements(DType dtype) const {
  const auto most = static_cast<std::int64_t>(scratch_.bytes() / size_of(dtype)) / (size_ - 1);
  return std::max<std::int64_t>(most / 16 * 16, 1);  // pieces stay aligned
}

/// The own piece and those in the scratch memory become one.
void NcclCommunicator::join(const Operation& op, const std::byte* own, std::byte* target, std::int64_t elements) {
  combine({own, scratch_.data(), elements, rank_, size_}, op.reduce, op.target.dtype, target, stream_);
}

void NcclCommunicator::all_reduce(const Operation& op, std::int64_t elements) {
  const ncclDataType_t type = type_of(op.source.dtype);
  const std::size_t unit = size_of(op.source.dtype);
  /// Swaps pieces: `mine(r)` goes to rank r, and rank r's piece, of own elements, to `place(r)`.
  const auto swap = [&](const auto& mine, const auto& count, const auto& place, const auto& its_count) {
    NcclGroup group(name());
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      if (count(r) > 0) {
        check_nccl(ncclSend(mine(r), static_cast<std::size_t>(count(r)), type, r, comm_, stream_), name(), "ncclSend");
      }
      if (its_count(r) > 0) {
        check_nccl(ncclRecv(place(r), static_cast<std::size_t>(its_count(r)), type, r, comm_, stream_), name(),
                   "ncclRecv");
      }
    }
    group.end();
  };
  const auto scratch_place = [&](int r, std::int64_t n) {
    return scratch_.data() + static_cast<std::size_t>((r < rank_ ? r : r - 1) * n) * unit;
  };
  if (elements <= most_elements(op.source.dtype) &&
      op.source.bytes() * static_cast<std::size_t>(size_) <= kSmallBytes) {
    const auto all = [&](int) { return elements; };
    swap([&](int) { return offset(op.source, 0); }, all, [&](int r) { return scratch_place(r, elements); }, all);
    return join(op, offset(op.source, 0), offset(op.target, 0), elements);
  }
  const std::int64_t most = most_elements(op.source.dtype) * size_;
  for (std::int64_t at = 0; at < elements; at += most) {
    const std::int64_t round = std::min(most, elements - at);
    const auto border = [&](int r) { return at + round * r / size_; };
    const auto piece = [&](int r) { return border(r + 1) - border(r); };
    const auto own = [&](int) { return piece(rank_); };
    swap([&](int r) { return offset(op.source, border(r)); }, piece,
         [&](int r) { return scratch_place(r, piece(rank_)); }, own);
    join(op, offset(op.source, border(rank_)), offset(op.target, border(rank_)), piece(rank_));
    if (round % size_ == 0) {
      check_nccl(ncclAllGather(offset(op.target, border(rank_)), offset(op.target, at),
                               static_cast<std::size_t>(piece(rank_)), type, comm_, stream_),
                 name(), "ncclAllGather");
    } else {
      swap([&](int) { return offset(op.target, border(rank_)); }, own,
           [&](int r) { return offset(op.target, border(r)); }, piece);
    }
  }
}

void NcclCommunicator::reduce_scatter(const Operation& op, std::int64_t elements) {
  const ncclDataType_t type = type_of(op.source.dtype);
  const std::size_t unit = size_of(op.source.dtype);
  const std::int64_t most = most_elements(op.source.dtype);
  for (std::int64_t at = 0; at < elements; at += most) {
    const std::int64_t round = std::min(most, elements - at);
    const auto count = static_cast<std::size_t>(round);
    NcclGroup group(name());
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      check_nccl(ncclSend(offset(op.source, r * elements + at), count, type, r, comm_, stream_), name(), "ncclSend");
      check_nccl(ncclRecv(scratch_.data() + static_cast<std::size_t>(r < rank_ ? r : r - 1) * count * unit, count, type,
                          r, comm_, stream_),
                 name(), "ncclRecv");
    }
    group.end();
    join(op, offset(op.source, rank_ * elements + at), offset(op.target, at), round);
  }
}

void NcclCommunicator::all_to_all(const Operation& op, std::int64_t elements) {
  if (elements == 0) return;
  const ncclDataType_t type = type_of(op.source.dtype);
  const auto count = static_cast<std::size_t>(elements);
  NcclGroup group(name());
  for (int r = 0; r < size_; ++r) {
    check_nccl(ncclSend(offset(op.source, r * elements), count, type, r, comm_, stream_), name(), "ncclSend");
    check_nccl(ncclRecv(offset(op.target, r * elements), count, type, r, comm_, stream_), name(), "ncclRecv");
  }
  group.end();
}

}  // namespace espalier::kernels_fused::cuda
