#include "train/likelihood.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

/// Inputs of a request.
std::int64_t length_of(const LikelihoodRequest& request) { return std::ssize(request.tokens) - 1; }

/// Few lengths, so that few schedules and arenas are planned; at most half of a row is padding.
std::int64_t padded(std::int64_t length, std::int64_t longest) {
  const auto rounded = std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(length, 16)));
  return std::min(static_cast<std::int64_t>(rounded), longest);
}

/// One pass of requests, and the losses that the head has for them.
class Pass final : public BatchSource, public LogitsSink {
 public:
  Pass(const Walk& walk, const Grid& grid, Backend& backend)
      : walk_(walk),
        grid_(grid),
        backend_(backend),
        rows_(static_cast<std::size_t>(walk.samples * walk.micro_batches)) {
    ids_.resize(rows_.size() * static_cast<std::size_t>(walk.seq));
    targets_.resize(ids_.size());
    losses_.resize(ids_.size());
  }

  /// @param part  positions in `requests`, of all data ranks.
  void fill(std::span<const LikelihoodRequest> requests, std::span<const std::size_t> part) {
    std::ranges::fill(ids_, 0);
    std::ranges::fill(targets_, -1);
    std::ranges::fill(rows_, nullptr);
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const auto micro_batch = static_cast<std::int64_t>(row) / walk_.samples;
      const std::int64_t at =
          (micro_batch * grid_.data + grid_.data_rank) * walk_.samples + static_cast<std::int64_t>(row) % walk_.samples;
      if (at >= std::ssize(part)) continue;
      const LikelihoodRequest& request = requests[part[static_cast<std::size_t>(at)]];
      rows_[row] = &request;
      const std::size_t first = row * static_cast<std::size_t>(walk_.seq);
      std::copy(request.tokens.begin(), request.tokens.end() - 1, ids_.begin() + static_cast<std::ptrdiff_t>(first));
      for (std::size_t t = request.first_target; t < request.tokens.size(); ++t)
        targets_[first + t - 1] = request.tokens[t];
    }
  }

  MicroBatch micro_batch(int index) override {
    const auto at = static_cast<std::size_t>(index * walk_.samples * walk_.seq);
    return {ids_.data() + at, targets_.data() + at, 0};
  }

  void logits(int, std::int64_t, std::int64_t, const View&) override {}
  void losses(int micro_batch, std::int64_t first_token, const View& loss) override {
    const auto at = static_cast<std::size_t>(micro_batch * walk_.samples * walk_.seq + first_token);
    Device& device = backend_.device();
    Stream& stream = device.lane(Lane::compute);
    device.copy(loss, View::vector(losses_.data() + at, loss.elements(), DType::f32), stream);
    device.wait(stream);
  }

  /// Adds what this rank has. @param result  one a request.
  void collect(std::span<const LikelihoodRequest> requests, std::span<double> result) const {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      if (rows_[row] == nullptr) continue;
      double sum = 0;
      const std::size_t first = row * static_cast<std::size_t>(walk_.seq);
      for (std::size_t t = 0; t < static_cast<std::size_t>(walk_.seq); ++t) {
        if (targets_[first + t] >= 0) sum -= static_cast<double>(losses_[first + t]);
      }
      result[static_cast<std::size_t>(rows_[row] - requests.data())] = sum;
    }
  }

 private:
  Walk walk_;
  const Grid& grid_;
  Backend& backend_;
  std::vector<const LikelihoodRequest*> rows_;
  std::vector<std::int32_t> ids_, targets_;
  std::vector<float> losses_;
};

}  // namespace

Likelihoods::Likelihoods(const RunFacts& facts, std::vector<LikelihoodRequest> requests, std::int64_t samples,
                         int micro_batches)
    : facts_(facts), requests_(std::move(requests)), order_(requests_.size()) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::stable_sort(
      order_, [&](std::size_t a, std::size_t b) { return requests_[a].tokens.size() > requests_[b].tokens.size(); });
  if (requests_.empty()) return;
  const std::int64_t longest = length_of(requests_[order_.front()]);
  for (const std::size_t at : order_) {
    const LikelihoodRequest& request = requests_[at];
    ESPALIER_ASSERT(request.first_target >= 1 && request.first_target < request.tokens.size());
    const Walk walk{Mode::forward_only, samples, padded(length_of(request), longest), micro_batches};
    if (walks_.empty() || walks_.back().seq != walk.seq) walks_.push_back(walk);
  }
}

std::vector<double> Likelihoods::run(Executor& executor, Backend& backend, Communicator& world,
                                     const std::function<void(std::int64_t)>& advanced) {
  std::vector<double> result(requests_.size(), 0.0);
  const bool has_losses = executor.has_head() && facts_.grid.tensor_rank == 0;
  const std::int64_t longest = requests_.empty() ? 0 : length_of(requests_[order_.front()]);
  std::size_t at = 0;
  for (const Walk& walk : walks_) {
    Pass pass(walk, facts_.grid, backend);
    executor.watch_logits(&pass);
    const auto most = static_cast<std::size_t>(walk.samples * walk.micro_batches * facts_.grid.data);
    while (at < order_.size() && padded(length_of(requests_[order_[at]]), longest) == walk.seq) {
      std::size_t end = at;
      while (end < order_.size() && end - at < most && padded(length_of(requests_[order_[end]]), longest) == walk.seq)
        ++end;
      pass.fill(requests_, std::span(order_).subspan(at, end - at));
      executor.evaluate(walk, pass);
      if (has_losses) pass.collect(requests_, result);
      advanced(static_cast<std::int64_t>(end - at));
      at = end;
    }
    executor.watch_logits(nullptr);
  }
  if (result.empty()) return result;
  const View view = View::vector(result.data(), std::ssize(result), DType::f64);
  world.run({Verb::all_reduce, view, view, Reduce::sum_rank_order, 0, 0}, backend.device().lane(Lane::compute));
  return result;
}

}  // namespace espalier::app
