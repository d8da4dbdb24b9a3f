// One rank builds the index cache, the others wait for it (D19); what one rank cannot read, no rank trains on.
#include "dataset.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "parity/data/support.hpp"
#include "support/mpi_test.hpp"
#include "unit/data/host_double.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

/// A folder that rank 0 makes and removes, with the corpora a and b in it.
class SharedData {
 public:
  SharedData() : world_(make_world_communicator()) {
    if (world_->rank() == 0) {
      folder_.emplace();
      copy_pair("corpora/a", *folder_);
      copy_pair("corpora/b", *folder_);
    }
    path_ = gather(folder_ ? folder_->path() : "")[0];
  }
  ~SharedData() { gather(""); }  // nobody reads any more when it goes

  int rank() const { return world_->rank(); }
  const std::string& path() const { return path_; }
  std::vector<std::string> names() const { return folder_ ? folder_->names() : std::vector<std::string>{}; }
  std::vector<std::string> gather(const std::string& text) const { return gather_strings(*world_, text); }

 private:
  std::unique_ptr<Communicator> world_;
  std::optional<TemporaryFolder> folder_;
  std::string path_;
};

ConfigTable blend_of(const std::string& a, const std::string& b) {
  return checked_data_table({{"train", tables_of({{{"path", a}, {"weight", 0.4}}, {{"path", b}, {"weight", 0.6}}})},
                             {"split", std::string("90,10,0")}});
}

class WorldHost : public HostDouble {
 public:
  WorldHost() : HostDouble(make_world_communicator()) {
    change_facts().batch.train_samples = 1500;
    change_facts().batch.eval_samples = 20;
    change_facts().batch.eval_runs = 3;
  }
};

std::string order_of(const IndexedDataset& data) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.sample_tokens()));
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i < data.sets()[0].samples; ++i) {
    data.read(0, i, tokens, {});
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  return sha256_of<std::int32_t>(all);
}

TEST(DatasetOnRanks, OneBuildsTheOthersWait) {
  ESPALIER_REQUIRE_RANKS(4);
  const auto delay = std::chrono::milliseconds(number_from("ESPALIER_TEST_DELAY_MS", 100));
  std::string first;
  for (int round = 0; round < number_from("ESPALIER_TEST_REPETITIONS", 3); ++round) {
    const SharedData shared;
    WorldHost host;
    const ConfigTable table = blend_of(shared.path() + "/a", shared.path() + "/b");
    bool held_up = false;
    const IndexedDataset data(ConfigView(table, "data"), host, [&] {
      if (!held_up) {
        std::this_thread::sleep_for(delay);
      }
      held_up = true;
    });
    EXPECT_EQ(held_up, shared.rank() == 0);
    EXPECT_EQ(host.logged("index cache built").size(), shared.rank() == 0 ? 4U : 0U);
    const std::string order = order_of(data) + std::to_string(data.fingerprint());
    for (const std::string& other : shared.gather(order)) {
      EXPECT_EQ(other, order);
    }
    EXPECT_TRUE(first.empty() || first == order);
    first = order;
    for (const std::string& name : shared.names()) {
      EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
    }
  }
}

TEST(DatasetOnRanks, WhatOneRankCannotReadStopsAll) {
  ESPALIER_REQUIRE_RANKS(4);
  const SharedData shared;
  WorldHost host;
  const ConfigTable table = blend_of(shared.path() + "/a", shared.path() + (shared.rank() == 2 ? "/lost" : "/b"));
  const auto message = message_of<Error>([&] { IndexedDataset(ConfigView(table, "data"), host); });
  EXPECT_NE(message.find("rank 2"), std::string::npos) << message;
  EXPECT_NE(message.find("/lost"), std::string::npos) << message;
}

TEST(DatasetOnRanks, AFolderThatCannotBeWrittenStopsAll) {
  ESPALIER_REQUIRE_RANKS(4);
  const SharedData shared;
  WorldHost host;
  ConfigTable table = blend_of(shared.path() + "/a", shared.path() + "/b");
  table.values["cache_dir"].data = shared.path() + "/a.bin/missing";  // below a file: cannot be made
  const auto message = message_of<Error>([&] { IndexedDataset(ConfigView(table, "data"), host); });
  EXPECT_NE(message.find("rank 0"), std::string::npos) << message;
  EXPECT_NE(message.find("/missing"), std::string::npos) << message;
}

}  // namespace
}  // namespace espalier::data_indexed
