#include "nccl_launch.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "controls.hpp"

namespace fake::nccl {
namespace {

constexpr int kGreetingTag = 1, kDataTag = 2;
constexpr auto kPatience = std::chrono::seconds(45);
constexpr std::size_t kRemembered = 4096;
constexpr std::byte kPoison{0xFF};

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather",
                                    "ncclBroadcast", "ncclSend",          "ncclRecv"};
  return kNames[static_cast<std::size_t>(kind)];
}

Signature signature_of(const Call& call) {
  const bool sums = call.kind == Kind::all_reduce || call.kind == Kind::reduce_scatter;
  return {static_cast<std::int32_t>(call.kind), static_cast<std::int32_t>(call.type),
          sums ? static_cast<std::int32_t>(call.reduction) : 0, call.kind >= Kind::broadcast ? call.peer : 0,
          call.count};
}

bool operator==(const Signature& a, const Signature& b) {
  return a.kind == b.kind && a.type == b.type && a.reduction == b.reduction && a.peer == b.peer && a.count == b.count;
}

std::uint64_t bytes_of(const Call& call, std::uint64_t pieces = 1) { return pieces * call.count * size_of(call.type); }

/// Launches of this process, and for each rank of the world which of its launches met which of ours.
std::uint64_t launches = 0;
std::map<int, std::map<std::uint64_t, std::uint64_t>> met;

/// Two ranks must launch what concerns both in one order, whatever the communicators: on a device they may else wait
/// for each other for ever.
void require_one_order(int peer, std::uint64_t mine, std::uint64_t theirs, const std::string& what) {
  auto& order = met[peer];
  const auto after = order.upper_bound(mine);
  const bool late = after != order.end() && after->second < theirs;
  const bool early = after != order.begin() && std::prev(after)->second > theirs;
  if (late || early) {
    throw std::runtime_error(what + ": launched in another order than on rank " + std::to_string(peer) +
                             " of the world: what was launched " + (late ? "after" : "before") +
                             " it here was launched the other way round there; on GPUs this can hang");
  }
  order[mine] = theirs;
  if (order.size() > kRemembered) order.erase(order.begin());
}

}  // namespace

std::string text_of(const Signature& s, int rank, int size) {
  std::string text = std::string(name_of(static_cast<Kind>(s.kind))) + " of " + std::to_string(s.count) +
                     " elements of type " + std::to_string(s.type);
  const auto kind = static_cast<Kind>(s.kind);
  if (kind <= Kind::reduce_scatter) text += ", reduction " + std::to_string(s.reduction);
  if (kind == Kind::broadcast) text += " from rank " + std::to_string(s.peer);
  if (kind == Kind::send) text += " to rank " + std::to_string(s.peer);
  if (kind == Kind::receive) text += " from rank " + std::to_string(s.peer);
  return text + " on rank " + std::to_string(rank) + " of " + std::to_string(size);
}

Launch::Launch(std::shared_ptr<ncclComm> comm, std::vector<Call> calls)
    : comm_(std::move(comm)), calls_(std::move(calls)), launch_(++launches), index_(comm_->launched++) {}

Launch::~Launch() {
  if (requests_.empty()) return;
  struct Left {
    std::vector<Greeting> mine, theirs;
    std::vector<Transfer> sent, received;
  };
  static std::vector<Left>* const left = new std::vector<Left>;
  left->push_back({std::move(mine_), std::move(theirs_), std::move(sent_), std::move(received_)});
}

std::vector<int> Launch::peers() const {
  std::vector<int> all;
  for (int r = 0; r < comm_->size; ++r) {
    if (r == comm_->rank) continue;
    const bool named = std::any_of(calls_.begin(), calls_.end(), [r](const Call& call) { return call.peer == r; });
    if (collective() || named) all.push_back(r);
  }
  return all;
}

std::string Launch::text() const {
  std::string text = "communicator " + std::to_string(comm_->number) + ", launch " + std::to_string(index_) + ": " +
                     text_of(signature_of(calls_.front()), comm_->rank, comm_->size);
  if (calls_.size() > 1) text += " and " + std::to_string(calls_.size() - 1) + " more calls of a group";
  return text;
}

void Launch::greet() {
  const std::vector<int> all = peers();
  mine_.resize(all.size());
  theirs_.resize(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    Greeting& greeting = mine_[i];
    greeting = {launch_, index_, 0, {}};
    for (const Call& call : calls_) {
      if (!collective() && call.peer != all[i]) continue;
      if (greeting.signatures == kMostSignatures) throw std::runtime_error(text() + ": too many calls in a group");
      greeting.list[greeting.signatures++] = signature_of(call);
    }
    requests_.resize(requests_.size() + 2);
    MPI_Irecv(&theirs_[i], sizeof(Greeting), MPI_BYTE, all[i], kGreetingTag, comm_->mpi,
              &requests_[requests_.size() - 2]);
    MPI_Isend(&mine_[i], sizeof(Greeting), MPI_BYTE, all[i], kGreetingTag, comm_->mpi, &requests_.back());
  }
}

void Launch::compare() {
  const std::vector<int> all = peers();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Greeting &a = mine_[i], &b = theirs_[i];
    bool fits = a.signatures == b.signatures;
    // What one sends the other receives, in order for each direction.
    std::vector<Signature> sends[2], receives[2];
    const Greeting* sides[] = {&a, &b};
    for (int side = 0; side < 2; ++side) {
      for (std::uint32_t s = 0; s < sides[side]->signatures; ++s) {
        Signature signature = sides[side]->list[s];
        if (collective()) {
          fits = fits && signature == a.list[s];
          continue;
        }
        const auto kind = static_cast<Kind>(signature.kind);
        fits = fits && kind >= Kind::send && signature.peer == (side == 0 ? all[i] : comm_->rank);
        signature.peer = signature.kind = 0;
        (kind == Kind::send ? sends : receives)[side].push_back(signature);
      }
    }
    for (int side = 0; side < 2; ++side) {
      fits =
          fits && std::equal(sends[side].begin(), sends[side].end(), receives[1 - side].begin(),
                             receives[1 - side].end(), [](const Signature& x, const Signature& y) { return x == y; });
    }
    if (!fits) {
      throw std::runtime_error(
          text() + ": does not meet " +
          (b.signatures == 0 ? std::string("an empty group") : text_of(b.list[0], all[i], comm_->size)) +
          (b.signatures > 1 ? " and " + std::to_string(b.signatures - 1) + " more" : ""));
    }
    require_one_order(comm_->world[static_cast<std::size_t>(all[i])], a.launch, b.launch, text());
  }
}

void Launch::send(int peer, const std::byte* data, std::uint64_t bytes) {
  sent_.push_back({peer, {data, data + bytes}, nullptr});
}
void Launch::receive(int peer, std::byte* target, std::uint64_t bytes) {
  received_.push_back({peer, std::vector<std::byte>(bytes), target});
}

void Launch::begin_collective(const Call& call) {
  const std::uint64_t piece = bytes_of(call);
  for (int r = 0; r < comm_->size; ++r) {
    if (r == comm_->rank) continue;
    switch (call.kind) {
      case Kind::all_reduce:
        send(r, call.source, piece);
        receive(r, nullptr, piece);
        break;
      case Kind::reduce_scatter:
        send(r, call.source + static_cast<std::uint64_t>(r) * piece, piece);
        receive(r, nullptr, piece);
        break;
      case Kind::all_gather:
        send(r, call.source, piece);
        receive(r, call.target + static_cast<std::uint64_t>(r) * piece, piece);
        break;
      case Kind::broadcast:
        if (comm_->rank == call.peer) send(r, call.source, piece);
        if (r == call.peer) receive(r, call.target, piece);
        break;
      case Kind::send:
      case Kind::receive:
        break;
    }
  }
}

void Launch::begin() {
  for (const Call& call : calls_) {
    const std::uint64_t pieces = call.kind == Kind::reduce_scatter ? static_cast<std::uint64_t>(comm_->size) : 1;
    const bool reads = call.kind != Kind::receive && (call.kind != Kind::broadcast || comm_->rank == call.peer);
    before_.emplace_back();
    if (reads) before_.back().assign(call.source, call.source + bytes_of(call, pieces));
    if (collective()) {
      begin_collective(call);
    } else if (call.peer == comm_->rank) {
      continue;  // to itself: in finish()
    } else if (call.kind == Kind::send) {
      send(call.peer, call.source, bytes_of(call));
    } else {
      receive(call.peer, call.target, bytes_of(call));
    }
  }
  for (const Transfer& transfer : received_) {
    if (transfer.target != nullptr) std::fill_n(transfer.target, transfer.bytes.size(), kPoison);
  }
  requests_.assign(sent_.size() + received_.size(), MPI_REQUEST_NULL);
  std::size_t next = 0;
  for (Transfer& t : received_) {
    MPI_Irecv_c(t.bytes.data(), static_cast<MPI_Count>(t.bytes.size()), MPI_BYTE, t.peer, kDataTag, comm_->mpi,
                &requests_[next++]);
  }
  for (const Transfer& t : sent_) {
    MPI_Isend_c(t.bytes.data(), static_cast<MPI_Count>(t.bytes.size()), MPI_BYTE, t.peer, kDataTag, comm_->mpi,
                &requests_[next++]);
  }
}

void Launch::finish() {
  // A pair of calls to itself, in order.
  std::vector<const Call*> own[2];
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    if (!before_[i].empty() && std::memcmp(before_[i].data(), call.source, before_[i].size()) != 0) {
      throw std::runtime_error(text() + ": its source was written while it was under way");
    }
    if (!collective() && call.peer == comm_->rank) own[call.kind == Kind::send ? 0 : 1].push_back(&call);
  }
  for (const Transfer& t : received_) {
    if (t.target == nullptr) continue;
    if (std::any_of(t.target, t.target + t.bytes.size(), [](std::byte b) { return b != kPoison; })) {
      throw std::runtime_error(text() + ": its target was written while it was under way");
    }
    std::copy(t.bytes.begin(), t.bytes.end(), t.target);
  }
  if (own[0].size() != own[1].size()) throw std::runtime_error(text() + ": a send to itself without a receive");
  for (std::size_t i = 0; i < own[0].size(); ++i)
    std::memmove(own[1][i]->target, own[0][i]->source, bytes_of(*own[0][i]));
  if (!collective()) return;
  const Call& call = calls_.front();
  const std::uint64_t piece = bytes_of(call), mine = static_cast<std::uint64_t>(comm_->rank) * piece;
  if (call.kind == Kind::all_gather) {
    std::memmove(call.target + mine, before_.front().data(), piece);
  } else if (call.kind == Kind::broadcast) {
    if (comm_->rank == call.peer) std::memmove(call.target, before_.front().data(), piece);
  } else {
    std::vector<const std::byte*> pieces;
    for (const Transfer& t : received_) pieces.push_back(t.bytes.data());
    pieces.insert(pieces.begin() + comm_->rank,
                  before_.front().data() + (call.kind == Kind::reduce_scatter ? mine : 0));
    ring_reduce(pieces, call.type, call.reduction, call.count, call.target);
  }
}

bool Launch::passed() {
  int all = 0;
  MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE);
  if (all == 0) return false;
  requests_.clear();
  return true;
}

bool Launch::step() try {
  const auto now = std::chrono::steady_clock::now();
  if (since_ == std::chrono::steady_clock::time_point{}) since_ = now;
  if (comm_->done != index_) return false;  // launches of a communicator run one after another, whatever their streams
  if (now - since_ > kPatience) throw std::runtime_error(text() + ": nobody has come to meet it");
  if (phase_ == 0) {
    greet();
    phase_ = 1;
  }
  if (phase_ == 1 && passed()) {
    compare();
    begin();
    phase_ = 2;
  }
  if (phase_ != 2 || !passed()) return false;
  finish();
  comm_->done += 1;
  return true;
} catch (const std::exception&) {
  comm_->error = ncclInvalidUsage;
  throw;
}

}  // namespace fake::nccl

std::uint64_t fake::nccl_launches() { return fake::nccl::launches; }
