#include "train/replicas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace espalier::app {
namespace {

/// A copy and what makes it the same thing as another rank's. Keys sort in logical order; the name is what follows the
/// last bar.
struct Keyed {
  std::string key;
  Copy copy;
};

const StateSpec* spec_of(const Optimizer& optimizer, std::string_view state) {
  for (const StateSpec& spec : optimizer.state()) {
    if (spec.name == state) return &spec;
  }
  return nullptr;
}

/// "1|8,16": the dimension that is split over the tensor group and the slice, padding included.
std::string slice_text(const Placement& placement) {
  const bool split = placement.copies == Copies::split && placement.dim >= 0;
  return split ? fmt::format("{}:{},{}", placement.dim, placement.begin, placement.end) : "whole";
}

class Finder {
 public:
  Finder(std::span<const LocalParameter> parameters, DataParallel& data, const Optimizer& optimizer)
      : parameters_(parameters), optimizer_(optimizer), pieces_(data.state()) {
    // A number kept once for a tensor belongs to the part of the tensor that a rank updates: a rank that updates
    // another part has another number.
    for (const StatePiece& piece : pieces_) {
      if (piece.state == "master") updates_[piece.parameter] += fmt::format("{},{};", piece.begin, piece.end);
    }
  }

  std::vector<Keyed> find() {
    std::vector<Keyed> found;
    for (int p = 0; p < static_cast<int>(parameters_.size()); ++p) {
      const LocalParameter& local = parameters_[static_cast<std::size_t>(p)];
      const std::string name = fmt::format("{} (working weights)", local.parameter.name);
      found.push_back({key(local.parameter.index, 0, "weight|" + slice_text(local.placement), name),
                       {p, local.parameter.layer, {}}});
    }
    for (const StatePiece& piece : pieces_) found.push_back(of_state(piece));
    return found;
  }

 private:
  Keyed of_state(const StatePiece& piece) {
    const int order = order_of(piece.state);
    if (piece.parameter < 0) {
      return {key(-1, order, std::string(piece.state), fmt::format("optimizer state {}", piece.state)),
              {-1, -1, piece.data}};
    }
    const LocalParameter& local = parameters_[static_cast<std::size_t>(piece.parameter)];
    const StateSpec* spec = spec_of(optimizer_, piece.state);
    const bool per_tensor = spec != nullptr && spec->keep == Keep::per_tensor;
    std::string range = fmt::format("{:012d},{}", piece.begin, piece.end);
    if (per_tensor) range += " of " + updates_[piece.parameter];
    std::string name = fmt::format("{} ({})", local.parameter.name, piece.state);
    const Shape& shape = piece.whole ? local.parameter.shape : local.placement.local;
    const bool whole = piece.begin == 0 && piece.end == shape.elements();
    if (!per_tensor && !whole) name += fmt::format(", elements {} to {}", piece.begin, piece.end);
    return {key(local.parameter.index, order, fmt::format("{}|{}|{}", piece.state, piece.whole ? "whole" : slice_text(local.placement), range),
                name),
            {piece.parameter, -1, piece.data}};
  }

  /// Of things a rank holds several times, the first is a copy of the first elsewhere, and so on.
  std::string key(int index, int order, const std::string& what, const std::string& name) {
    const std::string text = fmt::format("{:08d}|{:02d}|{}", index + 1, order, what);
    return fmt::format("{}|{}|{}", text, times_[text]++, name);
  }

  int order_of(std::string_view state) const {
    if (state == "master") return 1;
    const auto specs = optimizer_.state();
    const auto found = std::ranges::find_if(specs, [&](const StateSpec& spec) { return state == spec.name; });
    return static_cast<int>(found - specs.begin()) + 2;
  }

  std::span<const LocalParameter> parameters_;
  const Optimizer& optimizer_;
  std::vector<StatePiece> pieces_;
  std::map<int, std::string> updates_;  // by parameter: the ranges this rank updates
  std::map<std::string, int> times_;
};

/// Every rank's keys, as (key, rank).
std::map<std::string, std::vector<int>> holders_of(Communicator& world, const std::vector<Keyed>& own) {
  std::string text;
  for (const Keyed& one : own) text += one.key + "\n";
  const std::vector<std::string> all = gather_strings(world, text);
  std::map<std::string, std::vector<int>> holders;
  for (int rank = 0; rank < world.size(); ++rank) {
    std::string_view rest = all[static_cast<std::size_t>(rank)];
    while (!rest.empty()) {
      const auto end = rest.find('\n');
      holders[std::string(rest.substr(0, end))].push_back(rank);
      rest.remove_prefix(end + 1);
    }
  }
  return holders;
}

}  // namespace

Replicas find_replicas(Communicator& world, std::span<const LocalParameter> parameters, DataParallel& data,
                       const Optimizer& optimizer) {
  std::vector<Keyed> own = Finder(parameters, data, optimizer).find();
  Replicas result;
  std::vector<int> counts(static_cast<std::size_t>(world.size()));
  for (auto& [key, ranks] : holders_of(world, own)) {
    if (ranks.size() < 2) continue;
    Replicated& one = result.replicated.emplace_back();
    one.name = key.substr(key.rfind('|') + 1);
    one.ranks = std::move(ranks);
    for (const int rank : one.ranks) {
      one.slots.push_back(counts[static_cast<std::size_t>(rank)]++);
      if (rank != world.rank()) continue;
      const auto mine = std::ranges::find(own, key, &Keyed::key);
      result.copies.push_back(mine->copy);
    }
  }
  result.by_layer.resize(result.copies.size());
  std::iota(result.by_layer.begin(), result.by_layer.end(), 0);
  std::ranges::stable_sort(result.by_layer, {},
                           [&](int i) { return result.copies[static_cast<std::size_t>(i)].layer; });
  result.most_copies = *std::ranges::max_element(counts);
  return result;
}

}  // namespace espalier::app
