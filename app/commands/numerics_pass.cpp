#include "commands/numerics_pass.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "model/gather.hpp"
#include "train/phase.hpp"
#include "train/probe.hpp"

namespace espalier::app {
namespace {

/// This rank's share of the batch as micro-batches of one size; samples beyond the batch are masked.
class Share final : public BatchSource {
 public:
  Share(const NumericsBatch& batch, const Grid& grid, std::int64_t samples, int micro_batches)
      : samples_(samples), seq_(batch.seq), first_(grid.data_rank * samples * micro_batches) {
    const std::int64_t count = samples * micro_batches;
    ids_.assign(static_cast<std::size_t>(count * seq_), 0);
    targets_.assign(ids_.size(), -1);
    for (std::int64_t s = 0; s < count && first_ + s < batch.samples; ++s) {
      for (std::int64_t t = 0; t < seq_; ++t) {
        const auto from = static_cast<std::size_t>((first_ + s) * (seq_ + 1) + t);
        const auto to = static_cast<std::size_t>(s * seq_ + t);
        ids_[to] = static_cast<std::int32_t>(batch.tokens[from]);
        targets_[to] = static_cast<std::int32_t>(batch.tokens[from + 1]);
      }
    }
  }
  MicroBatch micro_batch(int index) override {
    const auto at = static_cast<std::size_t>(index * samples_ * seq_);
    return {ids_.data() + at, targets_.data() + at, first_sample(index)};
  }
  std::int64_t first_sample(int micro_batch) const { return first_ + micro_batch * samples_; }

 private:
  std::int64_t samples_, seq_, first_;
  std::vector<std::int32_t> ids_, targets_;
};

/// Puts this rank's columns of this rank's samples into the table of the whole batch; what others have stays 0.
class Collect final : public LogitsSink {
 public:
  Collect(const NumericsBatch& batch, const Share& share, std::int64_t vocab, Backend& backend)
      : batch_(batch),
        share_(share),
        vocab_(vocab),
        backend_(backend),
        table_(static_cast<std::size_t>(batch.samples * batch.seq * vocab), 0.0f) {}

  void logits(int micro_batch, std::int64_t first_token, std::int64_t first_id, const View& logits) override {
    const std::int64_t first = share_.first_sample(micro_batch) * batch_.seq + first_token;
    const std::int64_t rows = std::min(logits.rows, batch_.samples * batch_.seq - first);
    const std::int64_t columns = std::min(logits.cols, vocab_ - first_id);
    if (rows <= 0 || columns <= 0) return;
    const View host = View::matrix(table_.data(), batch_.samples * batch_.seq, vocab_, DType::f32);
    Device& device = backend_.device();
    Stream& stream = device.lane(Lane::compute);
    device.copy(logits.row_range(0, rows).col_range(0, columns),
                host.row_range(first, first + rows).col_range(first_id, first_id + columns), stream);
    device.wait(stream);
  }
  std::vector<float>& table() { return table_; }

 private:
  const NumericsBatch& batch_;
  const Share& share_;
  std::int64_t vocab_;
  Backend& backend_;
  std::vector<float> table_;
};

/// The fewest micro-batches that the schedule takes.
Walk numerics_walk(const Session& session, const PipelineParallel& pipeline, const NumericsBatch& batch) {
  const std::int64_t data = session.facts().grid.data;
  const std::int64_t share = (batch.samples + data - 1) / data;
  std::string last;
  for (int count = 1; count <= share; ++count) {
    const Reason reason = pipeline.accepts(Mode::train, count);
    if (!reason) return {Mode::train, (share + count - 1) / count, batch.seq, count};
    last = *reason;
  }
  throw ConfigError(
      fmt::format("numerics: a batch of {} samples is too small for the schedule: {}", batch.samples, last));
}

void write_tensor(SafetensorsWriter* writer, std::span<const float> values) {
  if (writer != nullptr) writer->write(std::as_bytes(values));
}

}  // namespace

std::string hugging_face_name(std::string_view parameter) {
  return parameter == "lm_head.weight" ? std::string(parameter) : "transformer." + std::string(parameter);
}

NumericsBatch read_numerics_batch(const SafetensorsFile& file, std::int64_t vocab) {
  const FileTensor& tensor = file.at("input_ids");
  if (tensor.shape.size() != 2 || tensor.shape[0] < 1 || tensor.shape[1] < 2) {
    throw IoError(fmt::format("{}: input_ids has shape {}, expected [batch, seq + 1] with at least two tokens a sample",
                              file.path().string(), tensor.shape_text()));
  }
  NumericsBatch batch{tensor.shape[0], tensor.shape[1] - 1, read_i64(tensor)};
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    if (batch.tokens[i] >= 0 && batch.tokens[i] < vocab) continue;
    const auto width = static_cast<std::size_t>(tensor.shape[1]);
    throw IoError(fmt::format("{}: input_ids[{}, {}] is {}, but the model's ids are 0 to {}", file.path().string(),
                              i / width, i % width, batch.tokens[i], vocab - 1));
  }
  return batch;
}

void run_numerics(Session& session, const NumericsBatch& batch, const std::filesystem::path& out,
                  FunctionRef<void()> fill) {
  Communicator& world = session.world();
  Executor& executor = session.executor();
  const ModelShape& shape = session.facts().model;
  GradientProbe probe(session.optimizer());
  Walk walk;
  phase(world, [&] {
    walk = numerics_walk(session, session.pipeline(), batch);
    executor.bind(std::span(&walk, 1), probe);
  });
  fill();

  Share share(batch, session.facts().grid, walk.samples, walk.micro_batches);
  Collect collect(batch, share, shape.vocab, session.backend());
  executor.watch_logits(&collect);
  const Verdict verdict = executor.train_step(walk, share, {}, probe);
  executor.watch_logits(nullptr);

  std::optional<SafetensorsWriter> file;
  phase(world, [&] {
    if (world.rank() != 0) return;
    std::vector<TensorHeader> tensors = {{"logits", DType::f32, {batch.samples, batch.seq, shape.vocab}},
                                         {"loss", DType::f32, {1}}};
    for (const Parameter& parameter : session.parameters().all()) {
      const auto dims = parameter.shape.dims();
      tensors.push_back({"grad." + hugging_face_name(parameter.name), DType::f32, {dims.begin(), dims.end()}});
    }
    file.emplace(out, tensors);
  });
  SafetensorsWriter* writer = file ? &*file : nullptr;
  sum_over_world(collect.table(), session.backend(), session.device_world());
  write_tensor(writer, collect.table());
  const auto loss = static_cast<float>(verdict.loss_sum / static_cast<double>(verdict.tokens));
  write_tensor(writer, std::span(&loss, 1));
  const std::vector<StatePiece> pieces = session.data_parallel().state();
  for (const Parameter& parameter : session.parameters().all()) {
    write_tensor(writer, gather_logical(parameter, GradientProbe::kState, pieces, executor.parameters(),
                                        session.backend(), session.device_world()));
  }
  phase(world, [&] {
    if (writer != nullptr) writer->finish();
  });
}

}  // namespace espalier::app
