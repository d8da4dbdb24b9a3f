#include "train/replica_guard.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <numeric>

#include "telemetry/rank_text.hpp"
#include "train/phase.hpp"

namespace espalier::app {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{4} << 20;
constexpr int kTag = 1;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

struct ReplicaGuard::HashState {
  XXH3_state_t* state = XXH3_createState();
  HashState() = default;
  HashState(const HashState&) = delete;
  HashState& operator=(const HashState&) = delete;
  ~HashState() { XXH3_freeState(state); }
};

ReplicaGuard::ReplicaGuard(const GuardParts& parts)
    : parts_(parts),
      replicas_(find_replicas(*parts.world, parts.parameters, *parts.data, *parts.optimizer)),
      state_(std::make_unique<HashState>()) {
  everyone_.resize(static_cast<std::size_t>(parts_.world->size()));
  std::iota(everyone_.begin(), everyone_.end(), 0);
  if (!parts_.backend->device().host_accessible()) staging_.resize(kStagingBytes);
}

ReplicaGuard::~ReplicaGuard() = default;

std::string ReplicaGuard::check(std::int64_t step, std::span<const RunNumber> numbers, GuardAction action) {
  const auto start = std::chrono::steady_clock::now();
  DataParallel& data = *parts_.data;
  Stream& stream = parts_.backend->device().lane(Lane::compute);
  if (!data.replicas_equal()) data.sync(stream);
  const std::vector<Difference> differences = compare(numbers);
  std::string repaired;
  if (!differences.empty()) {
    const std::string found = message(step, differences, numbers);
    const bool mendable = std::ranges::all_of(differences, [&](const Difference& difference) {
      return difference.number < 0 || numbers[static_cast<std::size_t>(difference.number)].home != nullptr;
    });
    if (!mendable) throw AgreedError(ExitCode::communication, found + "; this cannot be repaired");
    if (action == GuardAction::stop) {
      throw AgreedError(ExitCode::communication,
                        found + "; guard.action = \"repair\" would go on with the copy of most ranks");
    }
    repair(differences, numbers);
    if (const auto left = compare(numbers); !left.empty()) {
      throw AgreedError(ExitCode::communication, message(step, left, numbers) + "; it stays so after a repair");
    }
    repairs_ += 1;
    const Difference& first = differences.front();
    repaired = fmt::format("{}; repaired: the copy of rank {} went to {}", found, first.good.front(),
                           text_of_ranks(first.odd));
  }
  last_equal_ = step;
  checks_ += 1;
  seconds_ += seconds_since(start);
  return repaired;
}

std::vector<ReplicaGuard::Difference> ReplicaGuard::compare(std::span<const RunNumber> numbers) {
  Communicator& world = *parts_.world;
  width_ = numbers.size() + static_cast<std::size_t>(replicas_.most_copies);
  mine_.resize(width_);
  all_.resize(width_ * static_cast<std::size_t>(world.size()));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    mine_[i] = std::bit_cast<std::uint64_t>(numbers[i].home != nullptr ? *numbers[i].home : numbers[i].value);
  }
  hash_own(mine_.data() + numbers.size());
  Stream& stream = parts_.backend->device().lane(Lane::compute);
  world.finish(world.start_all_gather(View::vector(mine_.data(), std::ssize(mine_), DType::i64),
                                      View::vector(all_.data(), std::ssize(all_), DType::i64), stream),
               stream);

  std::vector<Difference> differences;
  const auto judge = [&](int number, int replicated, const auto& ranks, const auto& slot_of) {
    const std::uint64_t first = value_of(ranks[0], slot_of(0));
    bool equal = true;
    for (std::size_t i = 1; i < ranks.size() && equal; ++i) equal = value_of(ranks[i], slot_of(i)) == first;
    if (equal) return;
    std::map<std::uint64_t, int> votes;
    for (std::size_t i = 0; i < ranks.size(); ++i) votes[value_of(ranks[i], slot_of(i))] += 1;
    std::uint64_t best = first;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const std::uint64_t value = value_of(ranks[i], slot_of(i));
      if (votes[value] > votes[best]) best = value;
    }
    Difference& difference = differences.emplace_back();
    difference.number = number;
    difference.replicated = replicated;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      (value_of(ranks[i], slot_of(i)) == best ? difference.good : difference.odd).push_back(ranks[i]);
    }
  };
  for (int n = 0; n < static_cast<int>(numbers.size()); ++n) {
    judge(n, -1, everyone_, [&](std::size_t) { return n; });
  }
  for (int r = 0; r < static_cast<int>(replicas_.replicated.size()); ++r) {
    const Replicated& one = replicas_.replicated[static_cast<std::size_t>(r)];
    judge(-1, r, one.ranks, [&](std::size_t i) { return static_cast<int>(numbers.size()) + one.slots[i]; });
  }
  return differences;
}

void ReplicaGuard::hash_own(std::uint64_t* hashes) {
  DataParallel& data = *parts_.data;
  Stream& stream = parts_.backend->device().lane(Lane::compute);
  bytes_ = 0;
  int whole = -1;  // the layer whose weights are
  for (const int i : replicas_.by_layer) {
    const Copy& copy = replicas_.copies[static_cast<std::size_t>(i)];
    if (copy.layer != whole) {
      if (whole >= 0) data.release(whole, Need::all);
      if (copy.layer >= 0) data.acquire(copy.layer, Need::all, stream);
      whole = copy.layer;
      parts_.backend->device().wait(stream);
    }
    hashes[i] = hash(copy.layer >= 0 ? data.weight(copy.parameter) : copy.data);
  }
  if (whole >= 0) data.release(whole, Need::all);
}

std::uint64_t ReplicaGuard::hash(const View& view) {
  XXH3_64bits_reset(state_->state);
  Device& device = parts_.backend->device();
  const std::int64_t rows = view.contiguous() ? 1 : view.rows;
  const std::int64_t cols = view.elements() / std::max<std::int64_t>(rows, 1);
  for (std::int64_t r = 0; r < rows; ++r) {
    const View row = View::vector(view.at(r, 0), cols, view.dtype);
    bytes_ += row.bytes();
    if (device.host_accessible()) {
      XXH3_64bits_update(state_->state, row.data, row.bytes());
      continue;
    }
    const auto most = static_cast<std::int64_t>(staging_.size() / size_of(view.dtype));
    Stream& stream = device.lane(Lane::compute);
    for (std::int64_t begin = 0; begin < cols; begin += most) {
      const View part = row.flat_range(begin, std::min(begin + most, cols));
      device.copy(part, View::vector(staging_.data(), part.elements(), view.dtype), stream);
      device.wait(stream);
      XXH3_64bits_update(state_->state, staging_.data(), part.bytes());
    }
  }
  return XXH3_64bits_digest(state_->state);
}

void ReplicaGuard::repair(const std::vector<Difference>& differences, std::span<const RunNumber> numbers) {
  for (const Difference& difference : differences) {
    if (difference.number >= 0) {
      const RunNumber& number = numbers[static_cast<std::size_t>(difference.number)];
      if (number.home != nullptr)
        *number.home = std::bit_cast<double>(value_of(difference.good.front(), difference.number));
      continue;
    }
    send_copy(replicas_.replicated[static_cast<std::size_t>(difference.replicated)], difference);
  }
  // Working weights follow the true ones, and kernels forget what they packed.
  Stream& stream = parts_.backend->device().lane(Lane::compute);
  parts_.data->refresh(stream);
  parts_.backend->device().wait(stream);
}

/// All ranks go through the differences in one order, so that sends and receives meet.
void ReplicaGuard::send_copy(const Replicated& what, const Difference& difference) {
  Communicator& world = *parts_.device_world;
  const auto own = std::ranges::find(what.ranks, world.rank());
  if (own == what.ranks.end()) return;
  const Copy& copy =
      replicas_.copies[static_cast<std::size_t>(what.slots[static_cast<std::size_t>(own - what.ranks.begin())])];
  Stream& stream = parts_.backend->device().lane(Lane::compute);
  if (copy.layer >= 0) parts_.data->acquire(copy.layer, Need::all, stream);
  const View view = copy.layer >= 0 ? parts_.data->weight(copy.parameter) : copy.data;
  ESPALIER_ASSERT(view.contiguous());
  const int source = difference.good.front();
  if (world.rank() == source) {
    for (const int odd : difference.odd) world.finish(world.start_send(view.flat(), odd, kTag, stream), stream);
  } else if (std::ranges::find(difference.odd, world.rank()) != difference.odd.end()) {
    world.finish(world.start_receive(view.flat(), source, kTag, stream), stream);
  }
  if (copy.layer >= 0) parts_.data->release(copy.layer, Need::all);
}

std::string ReplicaGuard::text_of(const Difference& difference, std::span<const RunNumber> numbers) const {
  std::vector<int> all = difference.good;
  all.insert(all.end(), difference.odd.begin(), difference.odd.end());
  if (difference.number >= 0) {
    const auto value = [&](int rank) { return std::bit_cast<double>(value_of(rank, difference.number)); };
    return fmt::format("{} is not the same on all ranks: {} on {}, {} on {}",
                       numbers[static_cast<std::size_t>(difference.number)].name, value(difference.odd.front()),
                       text_of_ranks(difference.odd), value(difference.good.front()), text_of_ranks(difference.good));
  }
  const bool draw = difference.odd.size() >= difference.good.size();
  return fmt::format("{} is not the same over the {}: {} differs from {}{}",
                     replicas_.replicated[static_cast<std::size_t>(difference.replicated)].name, group_of(all),
                     text_of_ranks(difference.odd), text_of_ranks(difference.good), draw ? " (no majority)" : "");
}

std::string ReplicaGuard::message(std::int64_t step, const std::vector<Difference>& differences,
                                  std::span<const RunNumber> numbers) const {
  std::string text = fmt::format("replica guard: after step {}: {}", step, text_of(differences.front(), numbers));
  if (differences.size() > 1)
    text += fmt::format("; with it {} more of {} compared", differences.size() - 1, numbers.size() + replicated());
  text +=
      last_equal_ < 0 ? "; this is the first comparison" : fmt::format("; all were equal after step {}", last_equal_);
  return text;
}

/// The group in which these ranks have their copies.
std::string ReplicaGuard::group_of(const std::vector<int>& ranks) const {
  const int tensor = parts_.grid.tensor, data = parts_.grid.data;
  bool over_tensor = false, over_data = false, over_pipeline = false;
  for (const int rank : ranks) {
    over_tensor = over_tensor || rank % tensor != ranks[0] % tensor;
    over_data = over_data || rank / tensor % data != ranks[0] / tensor % data;
    over_pipeline = over_pipeline || rank / (tensor * data) != ranks[0] / (tensor * data);
  }
  std::string text;
  const auto add = [&](bool over, const char* name) {
    if (over) text += (text.empty() ? "" : " and ") + std::string(name);
  };
  add(over_tensor, "tensor group");
  add(over_data, "data group");
  add(over_pipeline, "first and last stage");
  return text;
}

}  // namespace espalier::app
