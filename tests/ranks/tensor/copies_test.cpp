// What all ranks of a tensor group hold stays equal to the bit; checkpoints of one size are read at another.
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "checkpoint/reader.hpp"
#include "checkpoint/store.hpp"
#include "checkpoint/writer.hpp"
#include "ranks/tensor/layout_run.hpp"
#include "support/mpi_test.hpp"
#include "train/phase.hpp"

namespace espalier::testing_support {
namespace {

namespace fs = std::filesystem;

/// FNV-1a over a view's bytes.
std::uint64_t hash(const View& view) {
  std::uint64_t value = 14695981039346656037ull;
  const auto* bytes = static_cast<const unsigned char*>(view.data);
  for (std::size_t i = 0; i < view.bytes(); ++i) value = (value ^ bytes[i]) * 1099511628211ull;
  return value;
}

/// Hashes of working weights and state that are not split, against those of the group's first rank.
void expect_equal_copies(LayoutRun& run) {
  std::vector<std::int64_t> own;
  std::vector<std::string> names;
  const auto parameters = run.executor().parameters();
  const auto add = [&](const LocalParameter& local, std::string_view what, const View& view) {
    if (local.placement.copies == Copies::split) return;
    const std::uint64_t value = hash(view);
    own.push_back(0);
    std::memcpy(&own.back(), &value, sizeof value);
    names.push_back(std::string(local.parameter.name) + " " + std::string(what));
  };
  run.data().sync(run.stream());
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    add(parameters[p], "weight", run.data().weight(static_cast<int>(p)));
  }
  for (const StatePiece& piece : run.data().state()) {
    if (piece.parameter >= 0) add(parameters[static_cast<std::size_t>(piece.parameter)], piece.state, piece.data);
  }
  ASSERT_GE(names.size(), 16u);  // weights of 2 norms and 2 row-parallel biases a layer, embedding and final norm
  std::vector<std::int64_t> first = own;
  const View view = View::vector(first.data(), std::ssize(first), DType::i64);
  run.tensor_group().run({Verb::broadcast, view, view, Reduce::sum_rank_order, 0, 0}, run.stream());
  for (std::size_t i = 0; i < own.size(); ++i) ASSERT_EQ(own[i], first[i]) << names[i];
}

class TensorCopies : public testing::Test {
 protected:
  const std::unique_ptr<Communicator> world_ = make_world_communicator();
};

// Case X04.
TEST_F(TensorCopies, StayEqualOverAHundredSteps) {
  for (const bool sp : {false, true}) {
    Layout layout;
    layout.tensor = 2;
    layout.data = world_->size() / 2;
    layout.sequence_parallel = sp;
    layout.optimizer = "optim_bf16";
    layout.provider = "kernels_fused";
    layout.global = 4;
    layout.micro = 1;
    ModelShape model = small_model();
    model.hidden_dropout = model.attention_dropout = 0.1;
    LayoutRun run(*world_, model, layout);
    for (int s = 0; s < 100; ++s) {
      run.step(s);
      expect_equal_copies(run);
      if (HasFatalFailure()) FAIL() << testing::PrintToString(layout) << " after step " << s + 1;
    }
  }
}

// Any size reads what any size wrote, and 13 rows are stored however they were padded (case X06).
TEST_F(TensorCopies, CheckpointsOfOneSizeAreReadAtAnother) {
  ModelShape model = small_model();
  model.vocab = model.tokenizer_vocab = 13;
  const int ranks = world_->size();
  std::vector<Layout> layouts;
  for (const int tensor : {1, 2, 4}) {
    if (ranks % tensor != 0) continue;
    Layout layout;
    layout.optimizer = "optim_bf16";
    layout.tensor = tensor;
    layout.data = ranks / tensor;
    layout.sequence_parallel = tensor == 4;
    layouts.push_back(layout);
  }
  const fs::path folder = fs::path(testing::TempDir()) / ("tensor_copies_" + std::to_string(ranks));
  for (const Layout& from : layouts) {
    phase(*world_, [&] {
      if (world_->rank() == 0) fs::remove_all(folder);
    });
    LayoutRun writes(*world_, model, from);
    for (int s = 0; s < 2; ++s) writes.step(s);
    CheckpointWriter writer({folder, 0, false}, *world_, writes.backend().device(), writes.executor().parameters(),
                            writes.data().state());
    Manifest manifest;
    manifest.train.step = 2;
    writer.start(manifest, writes.stream());
    writer.publish();
    const auto masters = writes.gather("master"), moments = writes.gather("moment1");
    const double loss = writes.evaluate(5).loss_sum;
    for (const Layout& to : layouts) {
      SCOPED_TRACE(testing::PrintToString(from) + " to " + testing::PrintToString(to));
      LayoutRun reads(*world_, model, to);
      const CheckpointReader reader(folder / CheckpointStore::name_of(2));
      for (const StoredTensor& tensor : reader.manifest().tensors) {
        if (tensor.parameter != "word_embeddings.weight") continue;
        EXPECT_EQ(tensor.shape, (Shape{13, model.hidden}));
      }
      const auto notes = reader.load(reads.parameters().all(), reads.executor().parameters(), reads.data().state(),
                                     LoadOptimizer::strict, reads.backend().device(), reads.stream());
      EXPECT_TRUE(notes.empty());
      reads.data().refresh(reads.stream());
      EXPECT_EQ(reads.gather("master"), masters);
      EXPECT_EQ(reads.gather("moment1"), moments);
      EXPECT_NEAR(reads.evaluate(5).loss_sum, loss, 2e-3 * loss);
      if (to.tensor > 1) expect_equal_copies(reads);
    }
  }
}

}  // namespace
}  // namespace espalier::testing_support
