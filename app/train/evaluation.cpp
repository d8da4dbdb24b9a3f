#include "train/evaluation.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/loader.hpp"
#include "train/phase.hpp"

namespace espalier::app {
namespace {

/// One pass' worth of samples of this rank; rows beyond the set are masked, so that every rank does the same passes.
class HeldOutBatches final : public BatchSource {
 public:
  HeldOutBatches(const Dataset& dataset, int set, const Walk& walk, const RunFacts& facts, std::int64_t samples)
      : dataset_(dataset), set_(set), walk_(walk), facts_(facts), samples_(samples),
        mask_(static_cast<std::size_t>(walk.seq)) {
    const auto rows = static_cast<std::size_t>(walk.samples * walk.micro_batches);
    targets_.resize(rows * static_cast<std::size_t>(walk.seq));
    ids_.resize(targets_.size() + 1);
  }

  /// Reads the pass that starts at `first`; returns the bytes of its targets.
  std::int64_t read(std::int64_t first, std::span<const std::int32_t> bytes_of_id) {
    const auto seq = static_cast<std::size_t>(walk_.seq);
    std::int64_t bytes = 0;
    std::size_t row = 0;
    for (int k = 0; k < walk_.micro_batches; ++k) {
      const std::int64_t start = first + (static_cast<std::int64_t>(k) * facts_.grid.data + facts_.grid.data_rank) * walk_.samples;
      for (std::int64_t i = 0; i < walk_.samples; ++i, ++row) {
        const auto ids = std::span(ids_).subspan(row * seq, seq + 1);
        const auto targets = std::span(targets_).subspan(row * seq, seq);
        if (start + i >= samples_) {
          std::ranges::fill(ids, 0);
          std::ranges::fill(targets, -1);
          continue;
        }
        read_sample(dataset_, set_, start + i, facts_.model.tokenizer_vocab, ids, mask_, targets);
        for (const std::int32_t target : targets) bytes += target >= 0 ? bytes_of_id[static_cast<std::size_t>(target)] : 0;
      }
    }
    return bytes;
  }

  MicroBatch micro_batch(int index) override {
    const auto at = static_cast<std::size_t>(index * walk_.samples * walk_.seq);
    return {ids_.data() + at, targets_.data() + at, 0};
  }

 private:
  const Dataset& dataset_;
  int set_;
  Walk walk_;
  const RunFacts& facts_;
  std::int64_t samples_;
  std::vector<std::int32_t> ids_, targets_;
  std::vector<std::uint8_t> mask_;
};

}  // namespace

double SetLoss::bits_per_byte() const {
  return bytes > 0 ? loss_sum / (std::numbers::ln2 * static_cast<double>(bytes)) : 0;
}

SetLoss total_of(std::span<const SetLoss> sets) {
  SetLoss total;
  total.name = "validation";
  for (const SetLoss& set : sets) {
    total.loss_sum += set.loss_sum;
    total.tokens += set.tokens;
    total.bytes += set.bytes;
  }
  return total;
}

Evaluation::Evaluation(Session& session, Dataset& dataset, std::int64_t samples)
    : session_(session), dataset_(dataset), samples_(samples) {
  const auto all = dataset_.sets();
  for (int i = 0; i < static_cast<int>(all.size()); ++i) {
    if (all[static_cast<std::size_t>(i)].split == Split::valid && all[static_cast<std::size_t>(i)].samples > 0) sets_.push_back(i);
  }
  walk_.mode = Mode::forward_only;
  walk_.samples = session_.recipe().train.batch.micro_batch;
  walk_.seq = session_.facts().model.seq_length;
  walk_.micro_batches = session_.pipeline().stages();  // enough to fill the stages
  bytes_of_id_.resize(static_cast<std::size_t>(session_.tokenizer().vocab_size()));
  for (std::size_t id = 0; id < bytes_of_id_.size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    bytes_of_id_[id] = static_cast<std::int32_t>(session_.tokenizer().decode({&token, 1}).size());
  }
}

SetLoss Evaluation::run(int set) {
  const SampleSet& info = dataset_.sets()[static_cast<std::size_t>(set)];
  const std::int64_t samples = samples_ > 0 ? std::min(samples_, info.samples) : info.samples;
  const std::int64_t pass = walk_.samples * walk_.micro_batches * session_.facts().grid.data;
  HeldOutBatches batches(dataset_, set, walk_, session_.facts(), samples);
  SetLoss loss;
  loss.name = info.name;
  double own_bytes = 0;
  for (std::int64_t first = 0; first < samples; first += pass) {
    phase(session_.world(), [&] { own_bytes += static_cast<double>(batches.read(first, bytes_of_id_)); });
    const EvalResult result = session_.executor().evaluate(walk_, batches);
    loss.loss_sum += result.loss_sum;
    loss.tokens += result.tokens;
  }
  // Ranks that share samples (tensor and pipeline groups) count them once.
  const Grid& grid = session_.facts().grid;
  double bytes = grid.tensor_rank == 0 && grid.pipeline_rank == 0 ? own_bytes : 0;
  const View view = View::vector(&bytes, 1, DType::f64);
  session_.world().run({Verb::all_reduce, view, view, Reduce::sum_rank_order, 0, 0}, session_.stream());
  loss.bytes = static_cast<std::int64_t>(bytes);
  return loss;
}

}  // namespace espalier::app
