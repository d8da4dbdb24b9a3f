#include "telemetry/comm_report.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace espalier::app {
namespace {

struct GroupTotal {
  std::string group;
  double bytes = 0, calls = 0, seconds = 0;
};

/// Groups in the order in which they were wrapped: the same on every rank.
std::vector<GroupTotal> totals_by_group(std::span<const CommTotal> rows) {
  std::vector<GroupTotal> groups;
  for (const CommTotal& row : rows) {
    if (groups.empty() || groups.back().group != row.group) groups.push_back({row.group});
    groups.back().bytes += static_cast<double>(row.bytes);
    groups.back().calls += static_cast<double>(row.calls);
    groups.back().seconds += row.wait_seconds;
  }
  return groups;
}

}  // namespace

CommReport::CommReport(const CommCounters& counters) : counters_(counters), last_(counters.totals()) {
  for (const CommTotal& row : last_) {
    const std::string name = fmt::format("comm {} {} ", row.group, name_of(row.verb));
    names_.push_back({name + "bytes", name + "calls", name + "wait (s)"});
  }
  metrics_.reserve(3 * names_.size());
}

std::span<const Metric> CommReport::since_last() {
  metrics_.clear();
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const CommTotal& now = counters_.totals()[i];
    CommTotal& last = last_[i];
    if (now.calls == 0) continue;
    metrics_.push_back({names_[i][0], static_cast<double>(now.bytes - last.bytes)});
    metrics_.push_back({names_[i][1], static_cast<double>(now.calls - last.calls)});
    metrics_.push_back({names_[i][2], now.wait_seconds - last.wait_seconds});
    last.bytes = now.bytes;
    last.calls = now.calls;
    last.wait_seconds = now.wait_seconds;
  }
  return metrics_;
}

std::vector<std::string> CommReport::lines(Communicator& world, Stream& stream) const {
  const std::vector<GroupTotal> groups = totals_by_group(counters_.totals());
  std::vector<double> own, all;
  for (const GroupTotal& group : groups) own.insert(own.end(), {group.bytes, group.seconds});
  all.resize(own.size() * static_cast<std::size_t>(world.size()));
  world.run({Verb::all_gather, View::vector(own.data(), std::ssize(own), DType::f64),
             View::vector(all.data(), std::ssize(all), DType::f64), Reduce::sum_rank_order, 0, 0},
            stream);
  std::vector<std::string> lines;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto of = [&](int rank, std::size_t what) {
      return all[static_cast<std::size_t>(rank) * own.size() + 2 * g + what];
    };
    double bytes = 0;
    int slowest = 0;
    for (int rank = 0; rank < world.size(); ++rank) {
      bytes = std::max(bytes, of(rank, 0));
      if (of(rank, 1) > of(slowest, 1)) slowest = rank;
    }
    lines.push_back(fmt::format(
        "{}: {:.1f} MB sent in {:.0f} calls, {:.3f} s waiting; most: {:.1f} MB, {:.3f} s (rank {})", groups[g].group,
        groups[g].bytes / 1e6, groups[g].calls, groups[g].seconds, bytes / 1e6, of(slowest, 1), slowest));
  }
  return lines;
}

}  // namespace espalier::app
