#include "checkpoint/store.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

#include "checkpoint/manifest.hpp"
#include "espalier/error.hpp"

namespace espalier::app {
namespace {

namespace fs = std::filesystem;

class Store : public testing::Test {
 protected:
  Store() : folder_(fs::path(testing::TempDir()) / ("store_" + std::to_string(::getpid()))), store_(folder_) { fs::remove_all(folder_); }
  ~Store() override { fs::remove_all(folder_); }

  void save(std::int64_t step, std::int64_t keep = 0) {
    store_.begin(step);
    write_synced(store_.temporary(step) / "manifest.json", Manifest{}.to_json());
    store_.publish(step, keep);
  }
  void point_at(const std::string& text) { std::ofstream(folder_ / "latest", std::ios::binary) << text; }

  fs::path folder_;
  CheckpointStore store_;
};

TEST_F(Store, HasNothingWhereNothingWasSaved) {
  EXPECT_FALSE(store_.newest().has_value());
  fs::create_directories(folder_ / "step_7.tmp");
  EXPECT_FALSE(store_.newest().has_value()) << "a save that did not finish is no checkpoint";
}

TEST_F(Store, PublishesByRenameAndMovesThePointer) {
  save(3);
  save(12);
  const auto found = store_.newest();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->path, folder_ / "step_12");
  EXPECT_EQ(found->note, "");
  EXPECT_FALSE(fs::exists(folder_ / "step_12.tmp"));
  EXPECT_EQ(store_.steps(), (std::vector<std::int64_t>{3, 12}));
}

// Case C05: a pointer file that is missing, empty, damaged or hand-edited.
TEST_F(Store, FallsBackToTheNewestCompleteOneWithAClearLine) {
  save(3);
  save(12);
  for (const std::string text : {"step_99\n", "", "garbage", "step_-1", "step_12x"}) {
    point_at(text);
    const auto found = store_.newest();
    ASSERT_TRUE(found.has_value()) << text;
    EXPECT_EQ(found->path, folder_ / "step_12") << text;
    EXPECT_NE(found->note.find("latest"), std::string::npos) << text;
  }
  point_at("step_3\r\n");  // an editor of another system was here
  EXPECT_EQ(store_.newest()->path, folder_ / "step_3");
  EXPECT_EQ(store_.newest()->note, "");
  fs::remove(folder_ / "latest");
  EXPECT_EQ(store_.newest()->path, folder_ / "step_12");
}

// Only the pointer is left: starting at step 0 would overwrite a run whose checkpoints may just lie elsewhere.
TEST_F(Store, APointerToNothingIsNoFreshStart) {
  fs::create_directories(folder_);
  point_at("step_10\n");
  try {
    store_.newest();
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("latest: names step_10, but no checkpoint is here"), std::string::npos) << error.what();
  }
}

// A folder that cannot be read is not an empty one: a run would start anew over what it holds.
TEST_F(Store, WhatCannotBeReadIsNoFreshStart) {
  fs::create_directories(folder_);
  fs::create_symlink("loop", folder_ / "loop");
  EXPECT_THROW(CheckpointStore(folder_ / "loop").newest(), IoError);
  save(3);
  fs::remove(folder_ / "step_3" / "manifest.json");
  fs::create_symlink("manifest.json", folder_ / "step_3" / "manifest.json");
  EXPECT_THROW(store_.newest(), IoError);
}

TEST_F(Store, APointerThatIsNoTextIsShownSafely) {
  save(3);
  point_at(std::string(4000, '\x1b'));
  const std::string note = store_.newest()->note;
  EXPECT_LT(note.size(), 400u);
  EXPECT_EQ(note.find('\x1b'), std::string::npos);
  fs::remove(folder_ / "latest");
  fs::create_directory(folder_ / "latest");
  EXPECT_EQ(store_.newest()->path, folder_ / "step_3");
}

TEST_F(Store, AFolderThatCannotBeOneIsNoticedBeforeAnythingIsSaved) {
  store_.require_room(1);
  EXPECT_TRUE(fs::is_directory(folder_));
  fs::remove(folder_);
  std::ofstream(folder_) << "a file";
  EXPECT_THROW(store_.require_room(1), IoError);
  fs::remove(folder_);
  EXPECT_THROW(store_.require_room(std::uint64_t{1} << 62), IoError);
}

TEST_F(Store, FindsWhatAUserMeans) {
  const fs::path run = folder_ / "run";
  const CheckpointStore inside(run / "checkpoints");
  inside.begin(4);
  write_synced(inside.temporary(4) / "manifest.json", Manifest{}.to_json());
  inside.publish(4, 0);
  const fs::path step = run / "checkpoints" / "step_4";
  for (const fs::path& named : {run, run / "checkpoints", step}) EXPECT_EQ(find_checkpoint(named.string()).path, step) << named;
  EXPECT_THROW(find_checkpoint(folder_.string()), IoError);
}

TEST_F(Store, ReportsLeftoversOfAKilledSave) {
  save(3);
  store_.begin(9);
  const auto found = store_.newest();
  EXPECT_EQ(found->path, folder_ / "step_3");
  EXPECT_NE(found->note.find("step_9.tmp"), std::string::npos);
}

// Case C20: keeping one must never leave none.
TEST_F(Store, KeepsTheNewest) {
  for (std::int64_t step = 1; step <= 5; ++step) save(step, 2);
  EXPECT_EQ(store_.steps(), (std::vector<std::int64_t>{4, 5}));
  save(6, 1);
  EXPECT_EQ(store_.steps(), (std::vector<std::int64_t>{6}));
  // A run that was set back, or started anew here: its own newest stay, and what it has not come past, too.
  save(2, 1);
  EXPECT_EQ(store_.steps(), (std::vector<std::int64_t>{2, 6}));
  save(3, 1);
  EXPECT_EQ(store_.steps(), (std::vector<std::int64_t>{3, 6}));
  save(7, 1);
  EXPECT_EQ(store_.steps(), (std::vector<std::int64_t>{7}));
}

TEST_F(Store, ReplacesACheckpointOfTheSameStep) {
  save(3);
  std::ofstream(folder_ / "step_3" / "old") << "x";
  save(3);
  EXPECT_FALSE(fs::exists(folder_ / "step_3" / "old"));
  EXPECT_TRUE(fs::exists(folder_ / "step_3" / "manifest.json"));
}

TEST_F(Store, NamesPathAndBytesWhenThereIsNoRoom) {
  try {
    store_.require_space(std::uint64_t{1} << 60);
    FAIL() << "an exbibyte should not fit";
  } catch (const IoError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(folder_.string()), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(std::uint64_t{1} << 60)), std::string::npos) << text;
    EXPECT_NE(text.find("errno 28"), std::string::npos) << text;
  }
}

Manifest sample_manifest() {
  Manifest manifest;
  manifest.train = {7, 112, 5, 2, 1, 1};
  manifest.seed = 18446744073709551615u;
  manifest.recipe = "[train]\nlr = 1e-4\n";
  manifest.optimizer = "optim_fp16";
  manifest.scalars = {{"loss_scale", 65536.0}, {"good_steps", 37.0}};
  manifest.data_fingerprint = "00ff";
  manifest.grid = {2, 1, 3, 0, 0, 0};
  StoredSlice slice;
  slice.file = "data_00001.bin";
  slice.offset = 64;
  slice.bytes = 24;
  slice.xxh3 = 0xfedcba9876543210u;
  slice.placement = {Copies::split, 1, 2, 4, 4, Shape{3, 2}};
  slice.begin = 0;
  slice.end = 6;
  manifest.tensors.push_back({"h.0.w", "master", Shape{3, 4}, DType::f32, {slice}});
  return manifest;
}

TEST(ManifestText, RoundTrips) {
  const Manifest manifest = sample_manifest();
  const std::string text = manifest.to_json();
  EXPECT_EQ(Manifest::from_json(text, "m").to_json(), text);
  const Manifest back = Manifest::from_json(text, "m");
  EXPECT_EQ(back.seed, manifest.seed);
  EXPECT_EQ(back.train, manifest.train);
  EXPECT_EQ(back.tensors[0].slices[0].xxh3, 0xfedcba9876543210u);
}

TEST(ManifestText, DamageIsAnErrorThatNamesTheFile) {
  const std::string good = sample_manifest().to_json();
  for (const std::string& bad : {std::string(), good.substr(0, good.size() / 2), std::string("[]"), std::string("{\"format\": 2}"),
                                 std::string("{\"format\": \"x\"}")}) {
    try {
      Manifest::from_json(bad, "/some/manifest.json");
      FAIL() << bad;
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find("/some/manifest.json"), std::string::npos) << error.what();
    }
  }
  std::string escaping = good;
  escaping.replace(escaping.find("data_00001.bin"), 14, "../../etc/motd");
  EXPECT_THROW(Manifest::from_json(escaping, "m"), IoError);
}

}  // namespace
}  // namespace espalier::app
