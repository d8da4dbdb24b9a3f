#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "espalier/communicator.hpp"

namespace espalier {
namespace {

class HostStream final : public Stream {};

/// Every rank's `n` numbers, in rank order.
std::vector<std::int64_t> gather(Communicator& group, std::span<const std::int64_t> mine) {
  HostStream stream;
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(group.size()));
  const View source = View::vector(const_cast<std::int64_t*>(mine.data()), std::ssize(mine), DType::i64);
  group.finish(group.start_all_gather(source, View::vector(all.data(), std::ssize(all), DType::i64), stream), stream);
  return all;
}

}  // namespace

std::vector<std::string> gather_strings(Communicator& group, std::string_view text) {
  const auto size = static_cast<std::size_t>(group.size());
  const std::vector<std::int64_t> lengths = gather(group, std::array{static_cast<std::int64_t>(text.size())});
  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<char> mine(longest), all(longest * size);
  std::copy(text.begin(), text.end(), mine.begin());
  HostStream stream;
  const View source = View::vector(mine.data(), std::ssize(mine), DType::u8);
  group.finish(group.start_all_gather(source, View::vector(all.data(), std::ssize(all), DType::u8), stream), stream);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < size; ++r)
    texts.emplace_back(all.data() + r * longest, static_cast<std::size_t>(lengths[r]));
  return texts;
}

void agree(Communicator& group, int exit_code, std::string_view problem) {
  const std::array<std::int64_t, 2> mine = {exit_code, static_cast<std::int64_t>(problem.size())};
  const std::vector<std::int64_t> all = gather(group, mine);
  for (int r = 0; r < group.size(); ++r) {
    const auto length = static_cast<std::size_t>(all[2 * static_cast<std::size_t>(r) + 1]);
    if (length == 0) continue;
    std::string text(length, ' ');
    if (r == group.rank()) text = problem;
    HostStream stream;
    group.finish(group.start_broadcast(View::vector(text.data(), std::ssize(text), DType::u8), r, stream), stream);
    if (group.size() > 1) text.insert(0, "rank " + std::to_string(r) + ": ");
    throw Error(static_cast<ExitCode>(all[2 * static_cast<std::size_t>(r)]), text);
  }
}

}  // namespace espalier
