#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "ranks/matrix/cases.hpp"
#include "support/doubles/recording_optimizer.hpp"
#include "support/hashed_batches.hpp"
#include "support/mpi_test.hpp"
#include "support/session_rig.hpp"

namespace espalier::testing_support {
namespace {

using namespace app;

constexpr int kRanks = 8;
constexpr int kSteps = 10;
constexpr std::int64_t kSamples = 12;  // of a step: every data size divides them

using Tensors = std::map<std::string, std::vector<float>>;

/// What a run leaves behind, in numbers that a sum over ranks carries to all of them.
struct Record {
  double losses[kSteps] = {};
  double norms[kSteps] = {};
  double gradients[2] = {};  ///< halves of a hash of the first step's
  double masters[2] = {};    ///< of the weights after the last
};

/// FNV-1a over all elements' bits, in two numbers that a double holds.
void hash(const Tensors& tensors, double* halves) {
  std::uint64_t value = 14695981039346656037ull;
  for (const auto& [name, values] : tensors) {
    for (const float x : values) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &x, sizeof bits);
      value = (value ^ bits) * 1099511628211ull;
    }
  }
  halves[0] = static_cast<double>(value >> 32);
  halves[1] = static_cast<double>(value & 0xffffffffu);
}

RigOptions rig_options(const MatrixCase& at) {
  RigOptions options;
  options.tensor = at.tensor;
  options.pipeline = at.pipeline;
  options.micro = at.one_micro_batch ? kSamples / at.data : 1;
  options.micro_batches = kSamples / at.data / options.micro;
  options.tokenizer_vocab = 59;
  options.set = {"model.layers=8",
                 "model.hidden=24",
                 "model.ffn=48",
                 "model.attention_dropout=0.1",
                 "model.hidden_dropout=0.1",
                 std::string("model.tied_head=") + (at.tied ? "true" : "false"),
                 std::string("model.position=") + (at.gpt2 ? "learned" : "alibi"),
                 std::string("model.embedding_norm=") + (at.gpt2 ? "false" : "true"),
                 std::string("parallel.tensor.sequence_parallel=") + (at.sequence_parallel ? "true" : "false"),
                 "parallel.pipeline.schedule=" + at.schedule,
                 "parallel.data.stage=" + std::to_string(at.zero)};
  return options;
}

struct ModelKind {
  bool tied, gpt2;
};
constexpr ModelKind kShapes[] = {{true, false}, {false, false}, {true, true}};

std::size_t shape_of(const MatrixCase& at) { return at.gpt2 ? 2 : at.tied ? 0 : 1; }

/// The built-in strategies: no communication.
RigOptions alone_options(const ModelKind& shape) {
  MatrixCase at;
  at.tied = shape.tied;
  at.gpt2 = shape.gpt2;
  RigOptions options = rig_options(at);
  options.set.resize(8);  // those of the model
  for (const char* strategy : {"tensor", "pipeline", "data"}) {
    options.set.push_back("parallel." + std::string(strategy) + ".plugin=none");
  }
  return options;
}

/// @param check  called with the gradients of the first step.
template <class Check>
Record run_case(Communicator& world, const RigOptions& options, Check&& check) {
  SessionRig rig(world, options);
  RecordingOptimizer optimizer(rig.session().optimizer());
  const Walk walk = rig.train_walk();
  rig.bind(std::span(&walk, 1), optimizer, 0.06);
  const Grid& grid = rig.facts().grid;
  Record record;
  for (int step = 0; step < kSteps; ++step) {
    HashedBatches batches(rig.facts().model, options.micro, kSamples, grid.data, grid.data_rank, step);
    // The first gradients are compared as they are; then clipping takes part.
    const StepSettings settings{1e-3, step == 0 ? 0.0 : 1.0, step + 1};
    const Verdict verdict = rig.executor().train_step(walk, batches, settings, optimizer);
    record.losses[step] = verdict.loss_sum / static_cast<double>(verdict.tokens);
    record.norms[step] = verdict.norm;
    if (step > 0) continue;
    const Tensors gradients = rig.gather(GradientProbe::kState);
    hash(gradients, record.gradients);
    check(gradients);
  }
  hash(rig.gather("master"), record.masters);
  return record;
}

/// What one rank gives.
struct Truth {
  Record record;
  Tensors gradients;
};

/// Worked out by rank 0, known to all.
Truth truth_of(Communicator& world, const ModelKind& model) {
  Truth truth;
  const auto self = make_self_communicator("world");
  if (world.rank() == 0) {
    truth.record = run_case(*self, alone_options(model), [&](const Tensors& all) { truth.gradients = all; });
  }
  wait_asleep(world);
  if (world.rank() != 0) {
    // Names and sizes of the model.
    SessionRig shape(*self, alone_options(model));
    for (const Parameter& parameter : shape.parameters().all()) {
      truth.gradients[std::string(parameter.name)].resize(static_cast<std::size_t>(parameter.shape.elements()));
    }
  }
  class HostStream final : public Stream {
  } stream;
  const auto broadcast = [&](const View& view) {
    world.run({Verb::broadcast, view, view, Reduce::sum_rank_order, 0, 0}, stream);
  };
  broadcast(View::vector(&truth.record, sizeof truth.record / sizeof(double), DType::f64));
  for (auto& [name, values] : truth.gradients) {
    broadcast(View::vector(values.data(), std::ssize(values), DType::f32));
  }
  return truth;
}

/// Largest error at most 1e-4 of the parameter's rms + 1e-8; key biases have a gradient of rounding noise only.
void expect_gradients(const Tensors& found, const Tensors& expected, std::int64_t head_dim, const std::string& layout) {
  ASSERT_EQ(found.size(), expected.size()) << layout;
  for (const auto& [name, truth] : expected) {
    const auto& values = found.at(name);
    ASSERT_EQ(values.size(), truth.size()) << layout << ": " << name;
    double squares = 0;
    for (const float value : truth) squares += static_cast<double>(value) * value;
    const double rms = std::sqrt(squares / static_cast<double>(truth.size()));
    const bool qkv_bias = name.find("query_key_value.bias") != std::string::npos;
    double worst = 0;  // in units of what is allowed
    std::size_t where = 0;
    for (std::size_t i = 0; i < truth.size(); ++i) {
      const bool key_bias = qkv_bias && static_cast<std::int64_t>(i) / head_dim % 3 == 1;
      const double allowed = (key_bias ? 0 : 1e-4 * rms) + 1e-8;
      const double error = std::fabs(static_cast<double>(values[i]) - static_cast<double>(truth[i])) / allowed;
      if (error <= worst) continue;  // NaN is not
      worst = error;
      where = i;
    }
    EXPECT_LE(worst, 1) << layout << ": step 1: gradient of " << name << ": element " << where << " is "
                        << values[where] << " instead of " << truth[where] << " (rms " << rms << ")";
  }
}

void expect_steps(const Record& found, const Record& truth, const std::string& layout) {
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(found.losses[step], truth.losses[step], 1e-5 * truth.losses[step])
        << layout << ": loss of step " << step + 1;
    EXPECT_NEAR(found.norms[step], truth.norms[step], 1e-5 * truth.norms[step])
        << layout << ": gradient norm of step " << step + 1;
  }
}

void expect_same_bits(const Record& found, const Record& first, const std::string& both) {
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_EQ(found.losses[step] - first.losses[step], 0) << both << ": loss of step " << step + 1;
    EXPECT_EQ(found.norms[step] - first.norms[step], 0) << both << ": gradient norm of step " << step + 1;
  }
  for (int half = 0; half < 2; ++half) {
    EXPECT_EQ(found.gradients[half], first.gradients[half]) << both << ": gradients of step 1";
    EXPECT_EQ(found.masters[half], first.masters[half]) << both << ": weights after step " << kSteps;
  }
}

}  // namespace

void run_matrix(const std::vector<MatrixCase>& cases) {
  ESPALIER_REQUIRE_RANKS(kRanks);
  const auto world = make_world_communicator();
  std::vector<Truth> truths;
  for (const ModelKind& shape : kShapes) truths.push_back(truth_of(*world, shape));
  EXPECT_LT(truths[0].record.losses[kSteps - 1], truths[0].record.losses[0]) << "it learns";
  std::vector<Record> records(cases.size());
  std::vector<int> ranks;
  for (const MatrixCase& at : cases) ranks.push_back(at.ranks());
  run_packed(*world, ranks, [&](Communicator& group, std::size_t i) {
    const MatrixCase& at = cases[i];
    const Truth& truth = truths[shape_of(at)];
    try {
      const Record record = run_case(group, rig_options(at), [&](const Tensors& gradients) {
        if (group.rank() == 0) expect_gradients(gradients, truth.gradients, 2, at.name());
      });
      if (group.rank() != 0) return;
      expect_steps(record, truth.record, at.name());
      records[i] = record;
    } catch (const std::exception& error) {
      FAIL() << at.name() << ": " << error.what();
    }
  });
  class HostStream final : public Stream {
  } stream;
  const auto numbers = static_cast<std::int64_t>(records.size() * sizeof(Record) / sizeof(double));
  const View all = View::vector(records.data(), numbers, DType::f64);
  world->run({Verb::all_reduce, all, all, Reduce::sum_rank_order, 0, 0}, stream);
  if (world->rank() != 0) return;
  std::map<std::string, std::size_t> firsts;
  std::size_t compared = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto [first, fresh] = firsts.try_emplace(cases[i].bit_class(), i);
    if (fresh) continue;
    expect_same_bits(records[i], records[first->second], cases[i].name() + " against " + cases[first->second].name());
    ++compared;
  }
  std::printf("%zu layouts are one rank's; %zu of them are another's to the bit, in %zu classes\n", cases.size(),
              compared, firsts.size());
  EXPECT_GT(compared, cases.size() / 2);
}

}  // namespace espalier::testing_support
