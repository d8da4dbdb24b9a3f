// Random text that can be learnt a little, made to fail on one rank, to mask targets, or to write down what is read.
// For tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <string>

#include "espalier/communicator.hpp"
#include "espalier/config.hpp"
#include "espalier/dataset.hpp"
#include "espalier/error.hpp"
#include "espalier/host.hpp"
#include "faulty_backend.hpp"

namespace espalier::faults {

class FaultyDataset final : public Dataset {
 public:
  FaultyDataset(const ConfigView& config, HostContext& host)
      : tokens_(host.facts().model.seq_length + 1),
        fault_(config.string("fault")),
        index_(config.integer("index")),
        mask_(config.boolean("mask")) {
    const BatchPlan& plan = host.facts().batch;
    sets_[0] = {"train", Split::train, plan.train_samples};
    sets_[1] = {"valid", Split::valid, plan.eval_samples > 0 ? plan.eval_samples : 16};
    const int own = world_rank(host.facts().grid);
    const std::int64_t rank = config.integer("rank");
    if (rank >= 0 && rank != own) fault_ = "";
    if (fault_ == "open") throw IoError("/data/set.idx: cannot open on purpose");
    own_group_ = host.communicator(Group::world).split(0, own, "own");
    const std::string path = config.string("record");
    if (!path.empty()) record_.open(path + "." + std::to_string(own), std::ios::app);
  }
  std::span<const SampleSet> sets() const override { return sets_; }
  std::int64_t sample_tokens() const override { return tokens_; }
  void read(int set, std::int64_t index, std::span<std::int32_t> tokens,
            std::span<std::uint8_t> loss_mask) const override {
    if ((set == 0 && fault_ == "train" && index >= index_) || (set == 1 && fault_ == "valid")) {
      throw IoError("/data/set.bin: cannot read on purpose");
    }
    if (record_.is_open() && set == 1) record_ << index << std::endl;
    std::minstd_rand random(static_cast<std::uint32_t>(2 * index + set + 1));
    for (std::int32_t& token : tokens) token = 97 + static_cast<std::int32_t>(random() % 1000 % 26);
    if (!mask_ || loss_mask.empty()) return;
    // Few targets in one sample, many in the next.
    const auto counted = static_cast<std::ptrdiff_t>(1 + index * 7 % static_cast<std::int64_t>(loss_mask.size()));
    std::fill(loss_mask.begin() + counted, loss_mask.end(), std::uint8_t{0});
  }
  SampleOrigin origin(int set, std::int64_t index) const override {
    return {set == 0 ? "random:train" : "random:valid", index};
  }
  std::uint64_t fingerprint() const override { return 1; }

 private:
  std::unique_ptr<Communicator> own_group_;  ///< kept until destruction, as a plugin may
  std::int64_t tokens_;
  std::array<SampleSet, 2> sets_;
  std::string fault_;
  std::int64_t index_;
  bool mask_;
  mutable std::ofstream record_;
};

}  // namespace espalier::faults
