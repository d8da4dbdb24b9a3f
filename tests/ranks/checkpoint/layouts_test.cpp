// Writes a checkpoint from one layout and reads it into others: shards that do not divide, padding, splits by row and by column.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "checkpoint/reader.hpp"
#include "checkpoint/store.hpp"
#include "checkpoint/writer.hpp"
#include "espalier/communicator.hpp"
#include "model/layout.hpp"
#include "support/mpi_test.hpp"
#include "train/phase.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;

const Parameter kParameters[] = {
    {"embedding", Shape{13, 5}, Role::word_embedding, 0, true, true, 0},
    {"down", Shape{6, 12}, Role::mlp_down_weight, 1, false, true, 1},
    {"norm", Shape{7}, Role::norm_weight, 2, false, false, 2},
};

/// Value of a logical element: tells parameter and position.
float expected(int parameter, int state, std::int64_t logical) {
  return static_cast<float>(1000 * (parameter + 1) + 250 * state) + static_cast<float>(logical) + 0.0009765625f;
}

/// One rank's state under `tensor` x `data` ranks: embedding by padded rows, down by columns, norm whole; every local tensor cut
/// into `data` nearly equal shards.
struct Layout {
  std::vector<LocalParameter> locals;
  std::vector<StatePiece> pieces;
  std::vector<std::unique_ptr<float[]>> memory;

  Layout(int tensor, int tensor_rank, int data, int data_rank) {
    for (const Parameter& parameter : kParameters) {
      Placement place;
      place.local = parameter.shape;
      if (parameter.role != Role::norm_weight) {
        const int dim = parameter.role == Role::word_embedding ? 0 : 1;
        const std::int64_t real = parameter.shape[dim];
        const std::int64_t part = (real + tensor - 1) / tensor;
        place.copies = Copies::split;
        place.dim = dim;
        place.begin = part * tensor_rank;
        place.end = part * (tensor_rank + 1);
        place.real_end = std::max(place.begin, std::min(place.end, real));
        place.local[dim] = part;
      }
      locals.push_back({parameter, place});
      const std::int64_t elements = place.local.elements();
      const std::int64_t begin = elements * data_rank / data, end = elements * (data_rank + 1) / data;
      for (const char* state : {"master", "moment1"}) {
        memory.push_back(std::make_unique<float[]>(static_cast<std::size_t>(end - begin)));
        // Replicated tensors are written by the first rank of the tensor group.
        const bool writes = place.copies == Copies::split || tensor_rank == 0;
        pieces.push_back({parameter.index, state, begin, end, View::vector(memory.back().get(), end - begin, DType::f32), writes});
      }
    }
  }

  template <class Body>
  void for_each(Body&& body) {
    for (StatePiece& piece : pieces) {
      const int state = piece.state == "master" ? 0 : 1;
      for_each_run(locals[static_cast<std::size_t>(piece.parameter)], piece, [&](const Run& run) {
        for (std::int64_t i = 0; i < run.length; ++i) {
          body(piece.data.as<float>()[run.local - piece.begin + i], piece.parameter, state, run.logical < 0 ? -1 : run.logical + i);
        }
      });
    }
  }
};

/// A device like a GPU as far as a snapshot is concerned: the host does not look into its memory, and copies to it are made when
/// the device is waited for. It has pinned memory, or none.
class FarDevice final : public Device {
 public:
  explicit FarDevice(bool pins) : pins_(pins) {}
  std::size_t pinned = 0;  ///< bytes that were reserved

  std::string_view name() const override { return "far:0"; }
  bool host_accessible() const override { return false; }
  DeviceMemory reserve(std::size_t bytes, std::string_view purpose) override { return cpu_->reserve(bytes, purpose); }
  DeviceMemory reserve_near_host(std::size_t bytes, std::string_view purpose) override {
    if (!pins_) throw DeviceError("far:0: cannot pin memory");
    pinned += bytes;
    return cpu_->reserve(bytes, purpose);
  }
  Stream& lane(Lane lane) override { return cpu_->lane(lane); }
  void order(Stream&, Stream&) override {}
  void copy(const View& from, const View& to, Stream&) override { queued_.emplace_back(from, to); }
  void fill_zero(const View& view, Stream& stream) override { cpu_->fill_zero(view, stream); }
  void wait(Stream& stream) override {
    for (const auto& [from, to] : queued_) cpu_->copy(from, to, stream);
    queued_.clear();
  }
  std::vector<MemoryUse> memory_use() const override { return cpu_->memory_use(); }

 protected:
  void release(void*, std::size_t) noexcept override {}

 private:
  bool pins_;
  std::unique_ptr<Device> cpu_ = make_cpu_device();
  std::vector<std::pair<View, View>> queued_;
};

class Layouts : public testing::Test {
 protected:
  Layouts() : world_(make_world_communicator()), device_(make_cpu_device()) {
    folder_ = fs::path(testing::TempDir()) / "checkpoint_layouts";
    folder_ += std::to_string(world_->size());
    phase(*world_, [&] {
      if (world_->rank() == 0) fs::remove_all(folder_);
    });
  }
  Stream& stream() { return device_->lane(Lane::compute); }

  void write(Layout& layout, std::int64_t step, bool async) { write(layout, step, async, *device_); }
  void write(Layout& layout, std::int64_t step, bool async, Device& device) {
    CheckpointWriter writer({folder_, 0, async}, *world_, device, layout.locals, layout.pieces);
    Manifest manifest;
    manifest.train.step = step;
    writer.start(manifest, stream());
    // Async: the snapshot counts, not what training does meanwhile.
    if (async) layout.for_each([](float& value, int, int, std::int64_t) { value = -1; });
    while (!writer.written()) ::usleep(1000);
    writer.publish();
  }

  void expect_loads(int tensor, int tensor_rank, int data, int data_rank, std::int64_t step) {
    Layout layout(tensor, tensor_rank, data, data_rank);
    layout.for_each([](float& value, int, int, std::int64_t) { value = -7; });
    const CheckpointReader reader(folder_ / CheckpointStore::name_of(step));
    EXPECT_TRUE(reader.load(kParameters, layout.locals, layout.pieces, LoadOptimizer::strict, *device_, stream()).empty());
    layout.for_each([&](float& value, int parameter, int state, std::int64_t logical) {
      EXPECT_EQ(value, logical < 0 ? 0.0f : expected(parameter, state, logical))
          << kParameters[parameter].name << " state " << state << " element " << logical;
    });
  }

  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Device> device_;
  fs::path folder_;
};

void fill(Layout& layout) {
  layout.for_each([](float& value, int parameter, int state, std::int64_t logical) {
    value = logical < 0 ? 99999.0f : expected(parameter, state, logical);
  });
}

TEST_F(Layouts, WhatAnyLayoutWroteEveryLayoutReads) {
  const int ranks = world_->size(), rank = world_->rank();
  std::int64_t step = 1;
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    if (ranks % tensor != 0) continue;
    for (const bool async : {false, true}) {
      Layout layout(tensor, rank % tensor, ranks / tensor, rank / tensor);
      fill(layout);
      write(layout, step, async);
      for (const int other_tensor : {1, 2, 3, 4}) {
        for (const int other_data : {1, 2, 5}) {
          for (int t = 0; t < other_tensor; ++t) {
            for (int d = 0; d < other_data; ++d) expect_loads(other_tensor, t, other_data, d, step);
          }
        }
      }
      ++step;
    }
  }
}

TEST_F(Layouts, AFlippedBitIsNoticedBeforeItIsUsed) {
  Layout layout(1, 0, world_->size(), world_->rank());
  fill(layout);
  write(layout, 1, false);
  phase(*world_, [&] {
    if (world_->rank() != 0) return;
    std::fstream file(folder_ / "step_1" / "data_00000.bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(5);
    file.put('\x55');
  });
  Layout target(1, 0, 1, 0);
  const CheckpointReader reader(folder_ / "step_1");
  try {
    reader.load(kParameters, target.locals, target.pieces, LoadOptimizer::strict, *device_, stream());
    FAIL() << "damage went unnoticed";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("data_00000.bin"), std::string::npos) << error.what();
  }
}

// Case C03: a shard that is missing is named before any state is touched.
TEST_F(Layouts, AMissingFileIsNamed) {
  Layout layout(1, 0, world_->size(), world_->rank());
  fill(layout);
  write(layout, 1, false);
  const std::string last = "data_0000" + std::to_string(world_->size() - 1) + ".bin";
  phase(*world_, [&] {
    if (world_->rank() == 0) fs::remove(folder_ / "step_1" / last);
  });
  try {
    const CheckpointReader reader(folder_ / "step_1");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find(last), std::string::npos) << error.what();
  }
}

// Case C26: what does not fit is listed, and nothing is changed.
TEST_F(Layouts, AnotherModelOrOptimizerIsRefusedUntouched) {
  Layout layout(1, 0, world_->size(), world_->rank());
  fill(layout);
  write(layout, 1, false);
  const CheckpointReader reader(folder_ / "step_1");

  Parameter other[] = {kParameters[0], kParameters[1], kParameters[2], {"extra", Shape{2}, Role::norm_bias, 2, false, false, 3}};
  other[1].shape = Shape{6, 11};
  other[2].name = "renamed";
  Layout target(1, 0, 1, 0);
  target.for_each([](float& value, int, int, std::int64_t) { value = -7; });
  try {
    reader.load(other, target.locals, target.pieces, LoadOptimizer::strict, *device_, stream());
    FAIL();
  } catch (const IoError& error) {
    const std::string text = error.what();
    for (const char* part : {"down [6, 12] against [6, 11]", "missing in the checkpoint: renamed, extra", "not in the model: norm"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    }
  }
  target.for_each([](float& value, int, int, std::int64_t) { EXPECT_EQ(value, -7.0f); });

  Layout renamed(1, 0, 1, 0);
  for (StatePiece& piece : renamed.pieces) {
    if (piece.state == "moment1") piece.state = "moment3";
  }
  EXPECT_THROW(reader.load(kParameters, renamed.locals, renamed.pieces, LoadOptimizer::strict, *device_, stream()), IoError);
  const auto notes = reader.load(kParameters, renamed.locals, renamed.pieces, LoadOptimizer::convert, *device_, stream());
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("moment3"), std::string::npos);
  EXPECT_NE(notes[1].find("moment1"), std::string::npos);
}

TEST_F(Layouts, ADevicesStateGoesThroughPinnedMemoryWhereThereIsSome) {
  std::int64_t step = 1;
  for (const bool pins : {true, false}) {
    for (const bool async : {true, false}) {
      Layout layout(1, 0, world_->size(), world_->rank());
      fill(layout);
      FarDevice device(pins);
      write(layout, step, async, device);
      EXPECT_EQ(device.pinned > 0, pins);
      expect_loads(1, 0, 1, 0, step++);
    }
  }
  Layout layout(1, 0, world_->size(), world_->rank());
  FarDevice device(true);
  const CheckpointWriter never({folder_, 0, true, false}, *world_, device, layout.locals, layout.pieces);
  EXPECT_EQ(device.pinned, 0u);
}

// Case C18: a save that cannot be published. All ranks throw alike; the old checkpoint is untouched.
TEST_F(Layouts, AFailedSaveLeavesTheOldCheckpoint) {
  Layout layout(1, 0, world_->size(), world_->rank());
  fill(layout);
  write(layout, 1, false);
  CheckpointWriter writer({folder_, 1, true}, *world_, *device_, layout.locals, layout.pieces);
  Manifest manifest;
  manifest.train.step = 2;
  writer.start(manifest, stream());
  while (!writer.written()) ::usleep(1000);
  phase(*world_, [] {});  // all ranks have written before the first one takes the folder away
  phase(*world_, [&] {
    if (world_->rank() == 0) fs::remove_all(folder_ / "step_2.tmp");
  });
  EXPECT_THROW(writer.publish(), AgreedError);
  EXPECT_EQ(CheckpointStore(folder_).newest()->path, folder_ / "step_1");
  expect_loads(1, 0, 1, 0, 1);
}

}  // namespace
}  // namespace espalier::app
