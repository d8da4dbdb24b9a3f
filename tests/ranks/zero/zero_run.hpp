// A few steps of parallel_zero on the toy model, and everything they leave behind.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/doubles/host.hpp"
#include "support/doubles/optimizers.hpp"
#include "support/doubles/toy_model.hpp"
#include "zero.hpp"

namespace espalier::testing_support {

/// Global result of a run: the same on every rank.
struct Outcome {
  std::map<std::string, std::vector<float>> state;    ///< "parameter/state": local elements
  std::map<std::string, std::vector<float>> weights;  ///< by parameter
  std::vector<double> squares;                        ///< of every step and parameter, summed over the world
};

struct Groups {
  std::unique_ptr<Communicator> data, tensor, pipeline;
};

/// Puts together the pieces that ranks would write into a checkpoint; each element must come from exactly one.
inline void collect_state(DataParallel& strategy, const std::vector<LocalParameter>& locals, Communicator& world,
                          Stream& stream, Outcome& outcome) {
  std::map<std::string, std::vector<double>> values, writers;
  for (const StatePiece& piece : strategy.state()) {
    const bool global = piece.parameter < 0;
    const auto p = static_cast<std::size_t>(global ? 0 : piece.parameter);
    const std::string key = (global ? "" : std::string(locals[p].parameter.name)) + "/" + std::string(piece.state);
    // A per-tensor number is one element; like-parameter state is recognised by the parameter's master piece.
    auto& sum = values[key];
    auto& count = writers[key];
    const bool single = global || piece.state == "updates";
    const auto n = static_cast<std::size_t>(single ? 1 : locals[p].placement.local.elements());
    sum.resize(n);
    count.resize(n);
    for (std::int64_t i = piece.begin; piece.writes && i < piece.end; ++i) {
      sum[static_cast<std::size_t>(i)] += double{load(piece.data, i - piece.begin)};
      count[static_cast<std::size_t>(i)] += 1;
    }
  }
  // Every rank has the same keys only after this: some own no part of a small parameter.
  std::string keys;
  for (const auto& [key, sum] : values) keys += key + ":" + std::to_string(sum.size()) + "\n";
  for (const std::string& text : gather_strings(world, keys)) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at), colon = text.rfind(':', end);
      const auto n = static_cast<std::size_t>(std::stoll(text.substr(colon + 1, end - colon - 1)));
      values[text.substr(at, colon - at)].resize(n);
      writers[text.substr(at, colon - at)].resize(n);
      at = end + 1;
    }
  }
  std::vector<double> all;  // one message: ranks outnumber cores
  for (const auto& [key, sum] : values) {
    all.insert(all.end(), sum.begin(), sum.end());
    all.insert(all.end(), writers[key].begin(), writers[key].end());
  }
  const View view = View::vector(all.data(), std::ssize(all), DType::f64);
  world.finish(world.start_all_reduce(view, Reduce::sum_rank_order, stream), stream);
  auto at = all.begin();
  for (const auto& [key, sum] : values) {
    const auto n = std::ssize(sum);
    outcome.state[key].assign(at, at + n);
    EXPECT_EQ(std::count(at + n, at + 2 * n, 1.0), n) << key << ": every element is written by one rank";
    at += 2 * n;
  }
}

struct ZeroSettings {
  int stage = 1;
  std::string reduce_dtype = "f32";
  int micro_batches = 2;
  std::map<std::string, ConfigValue::Data> more = {{"bucket_bytes", std::int64_t{4096}}};  ///< further options
};

/// @param locals  of this rank.  @param gradient_rank  whose gradients are written.
inline Outcome run_zero(const ZeroSettings& settings, Optimizer& optimizer, int steps, Groups groups,
                        Communicator& world, const std::vector<LocalParameter>& locals, int gradient_rank) {
  PlainBackend backend;
  TestHost host(backend, std::move(groups.data), std::move(groups.tensor), std::move(groups.pipeline));
  auto options = settings.more;
  options["stage"] = std::int64_t{settings.stage};
  options["reduce_dtype"] = settings.reduce_dtype;
  const TestConfig config(parallel_zero::kOptions, options);
  parallel_zero::Zero zero(config.view(), host);
  StatePlan plan;
  plan.parameters = locals;
  plan.precision = optimizer.precision();
  plan.end_layer = 4;
  zero.bind(plan, optimizer, backend);
  Stream& stream = backend.device().lane(Lane::compute);
  fill_weights(zero, locals, stream);

  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    zero.begin({}, settings.micro_batches);
    for (int m = 0; m < settings.micro_batches; ++m) write_gradients(zero, locals, m, gradient_rank, step, stream);
    zero.reduce(Do::reduce_gradients, stream);
    zero.reduce(Do::reduce_tied_gradients, stream);
    std::vector<double> slots(toy_parameters().size(), 0.0);
    zero.squares(slots.data(), stream);
    world.finish(world.start_all_reduce(View::vector(slots.data(), std::ssize(slots), DType::f64),
                                        Reduce::sum_rank_order, stream),
                 stream);
    outcome.squares.insert(outcome.squares.end(), slots.begin(), slots.end());
    const float factor = 0.25f;
    const std::int32_t skip = step == 1 ? 1 : 0;  // one step is left out
    zero.step(optimizer, {1e-2, &factor, &skip, step + 1}, stream);
  }
  for (std::size_t p = 0; p < locals.size(); ++p) {
    zero.acquire(locals[p].parameter.layer, Need::all, stream);
    const View weight = zero.weight(static_cast<int>(p));
    auto& values = outcome.weights[std::string(locals[p].parameter.name)];
    for (std::int64_t i = 0; i < weight.elements(); ++i) values.push_back(load(weight, i));
    zero.release(locals[p].parameter.layer, Need::all);
  }
  collect_state(zero, locals, world, stream, outcome);
  return outcome;
}

}  // namespace espalier::testing_support
