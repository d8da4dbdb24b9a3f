#include "step_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "model/initialise.hpp"
#include "train/speed.hpp"
#include "watched_backend.hpp"

namespace espalier::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShareOfCopy = 0.80, kShareOfPeak = 0.85;
/// Of the peak, as published for cuDNN on an H100 with heads of 64 channels: 335-413 TFLOP/s forward.
constexpr double kAttentionShare = 0.45, kAttentionBackwardShare = 0.35;
constexpr double kStart = 2.5e-6;

double modelled(const CallRecord::Part& part, const Rates& rates) {
  const double memory = part.sum.bytes / (kShareOfCopy * rates.copy);
  const double share = part.sum.bound == Bound::attention            ? kAttentionShare
                       : part.sum.bound == Bound::attention_backward ? kAttentionBackwardShare
                                                                     : kShareOfPeak;
  const double arithmetic = part.sum.flops / (share * rates.peak);
  return std::max({memory, arithmetic, static_cast<double>(part.calls) * kStart});
}

/// The same random tokens for every step.
class RandomTokens final : public app::BatchSource {
 public:
  RandomTokens(const ModelShape& model, const app::Walk& walk)
      : tokens_(walk.samples * walk.seq), samples_(walk.samples) {
    std::mt19937 generator(1);
    const std::int64_t most = model.tokenizer_vocab > 0 ? model.tokenizer_vocab : model.vocab;
    std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(most - 1));
    ids_.resize(static_cast<std::size_t>(tokens_ * walk.micro_batches + 1));
    for (std::int32_t& id : ids_) id = any(generator);
  }
  app::MicroBatch micro_batch(int index) override {
    const std::int32_t* const from = ids_.data() + index * tokens_;
    return {from, from + 1, index * samples_};
  }

 private:
  std::int64_t tokens_, samples_;
  std::vector<std::int32_t> ids_;
};

/// Steps of a recipe on a watched backend.
class Steps {
 public:
  Steps(app::Session& session, Backend& backend, bool dry)
      : session_(session), backend_(backend), walk_(last_walk(session.facts())), tokens_(session.facts().model, walk_) {
    app::ExecutorSetup setup = session.executor_setup();
    setup.backend = &backend_;
    if (dry) setup.world = &session.world();
    executor_ = std::make_unique<app::Executor>(setup);
    executor_->bind({&walk_, 1}, session.optimizer());
    if (dry) return;
    app::InitialWeights how;
    how.std = session.recipe().model.init_method_std;
    app::initialise(session.facts().model, how, executor_->parameters(), session.data_parallel(), backend_);
  }

  const app::Walk& walk() const { return walk_; }
  double one() {
    app::StepSettings settings;
    settings.lr = 1e-4;
    settings.clip = 1;
    settings.applied_steps = ++applied_;
    const auto begin = Clock::now();
    executor_->train_step(walk_, tokens_, settings, session_.optimizer());
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  /// The median of some steps, after two for plans, caches and clocks.
  double usual() {
    for (int i = 0; i < 2; ++i) one();
    std::vector<double> all(5);
    std::generate(all.begin(), all.end(), [&] { return one(); });
    std::nth_element(all.begin(), all.begin() + 2, all.end());
    return all[2];
  }
  /// What a call takes that does next to nothing: the queue, the kernel's start, the wait.
  double empty_call() {
    Device& device = session_.backend().device();
    Stream& stream = device.lane(Lane::compute);
    const DeviceMemory memory = device.reserve(64, "bench");
    const View view = View::vector(memory.data(), 4, DType::f32);
    std::vector<double> all(21);
    for (double& seconds : all) {
      device.wait(stream);
      const auto begin = Clock::now();
      session_.backend().kernels().update->scale(view, 1.0, nullptr, nullptr, stream);
      device.wait(stream);
      seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    std::nth_element(all.begin(), all.begin() + 10, all.end());
    return std::max(0.0, all[10] - kStart);
  }

 private:
  static app::Walk last_walk(const RunFacts& facts) {
    const auto& pairs = facts.batch.micro_batches;
    if (pairs.size() < 2) throw ConfigError("device_bench: the recipe trains nothing");
    return {Mode::train, pairs[pairs.size() - 2], facts.model.seq_length, static_cast<int>(pairs.back())};
  }

  app::Session& session_;
  Backend& backend_;
  app::Walk walk_;
  RandomTokens tokens_;
  std::unique_ptr<app::Executor> executor_;
  std::int64_t applied_ = 0;
};

struct Row {
  std::string name;
  const CallRecord::Part* part = nullptr;
  double modelled = 0, measured = 0;
};

/// @param less  taken off the time of each call.
std::vector<Row> rows_of(const CallRecord& record, const Rates& rates, double less) {
  std::vector<Row> rows;
  for (const auto& [name, part] : record.parts()) {
    const double least = static_cast<double>(part.calls) * kStart;
    const double seconds = part.seconds - static_cast<double>(part.calls) * less;
    rows.push_back({name, &part, modelled(part, rates), part.seconds > 0 ? std::max(least, seconds) : 0.0});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::max(a.modelled, a.measured) > std::max(b.modelled, b.measured);
  });
  return rows;
}

void print(const std::string& name, std::int64_t calls, double gflop, double gbytes, double model, double measured) {
  const auto ms = [](double seconds) { return seconds > 0 ? fmt::format("{:.3f}", seconds * 1e3) : std::string("-"); };
  const std::string ratio = model > 0 && measured > 0 ? fmt::format("{:.2f}", measured / model) : "-";
  fmt::print("| {:58} | {:6} | {:11.2f} | {:9.3f} | {:>10} | {:>10} | {:>5} |\n", name, calls, gflop, gbytes, ms(model),
             ms(measured), ratio);
}

nlohmann::ordered_json print_parts(const std::vector<Row>& rows, Row& all) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  fmt::print("| {:58} | {:>6} | {:>11} | {:>9} | {:>10} | {:>10} | {:>5} |\n", "part of a step", "calls", "GFLOP", "GB",
             "model, ms", "alone, ms", "ratio");
  fmt::print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  std::int64_t calls = 0;
  double flops = 0, bytes = 0;
  for (const Row& row : rows) {
    const Work& sum = row.part->sum;
    print(row.name, row.part->calls, sum.flops * 1e-9, sum.bytes * 1e-9, row.modelled, row.measured);
    list.push_back({{"name", row.name},
                    {"calls", row.part->calls},
                    {"flops", sum.flops},
                    {"bytes", sum.bytes},
                    {"modelled_seconds", row.modelled},
                    {"measured_seconds", row.measured}});
    calls += row.part->calls;
    flops += sum.flops;
    bytes += sum.bytes;
    all.modelled += row.modelled;
    all.measured += row.measured;
  }
  print("all parts", calls, flops * 1e-9, bytes * 1e-9, all.modelled, all.measured);
  return list;
}

}  // namespace

StepBench::StepBench() = default;
StepBench::~StepBench() = default;

nlohmann::ordered_json StepBench::run(app::Session& session, const Rates& rates, bool dry) {
  backend_ = dry ? watch_dry(session.backend(), record_) : watch(session.backend(), record_);
  record_.mode = dry ? CallRecord::Mode::dry : CallRecord::Mode::off;
  Steps steps(session, *backend_, dry);
  const app::Walk& walk = steps.walk();
  const auto tokens = static_cast<double>(walk.samples * walk.seq * walk.micro_batches);
  double step = 0, empty = 0;
  if (!dry) {
    step = steps.usual();
    empty = steps.empty_call();
  }
  record_ = {};  // of one step alone
  record_.mode = dry ? CallRecord::Mode::dry : CallRecord::Mode::timed;
  steps.one();
  fmt::print("\nA step of {} micro-batches of {} samples, {} tokens each; copy {:.0f} GB/s, peak {:.0f} TFLOP/s.\n\n",
             walk.micro_batches, walk.samples, walk.seq, rates.copy * 1e-9, rates.peak * 1e-12);
  Row all;
  const std::vector<Row> rows = rows_of(record_, rates, empty);
  nlohmann::ordered_json result{{"tokens", tokens}, {"parts", print_parts(rows, all)}};
  const Grid& grid = session.facts().grid;
  const double flops = app::step_flops(session.facts().model, walk.samples * walk.micro_batches * grid.data,
                                       session.recipe().train.recompute == app::Recompute::full) /
                       grid.world();
  const auto line = [&](const char* what, const char* key, double seconds) {
    if (seconds <= 0) return;
    fmt::print("{:34} {:10.3f} ms: {:9.0f} tokens/s a rank, {:6.1f} model TFLOP/s, {:4.1f} % of the peak\n", what,
               seconds * 1e3, tokens / seconds, flops / seconds * 1e-12, 100 * flops / seconds / rates.peak);
    result[key] = {{"seconds", seconds}, {"tokens_per_second", tokens / seconds}};
  };
  fmt::print("\n");
  line("step, modelled", "modelled", all.modelled);
  line("step, sum of its calls alone", "alone", all.measured);
  line("step, measured", "measured", step);
  if (step > 0) {
    fmt::print("beside its calls (host, communication, gaps between kernels; negative: calls overlap): {:.3f} ms\n",
               (step - all.measured) * 1e3);
  }
  return result;
}

}  // namespace espalier::bench
