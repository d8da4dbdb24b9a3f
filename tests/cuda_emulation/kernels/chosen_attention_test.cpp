// Which attention runs: a library's where it takes the problem, else our own.
#include "chosen_attention.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace espalier::kernels_fused::cuda {
namespace {

/// Notes its calls; refuses dropout if told to.
class Double final : public AttentionKernels {
 public:
  Double(std::string name, std::size_t bytes, bool refuses, std::vector<std::string>& calls)
      : name_(std::move(name)), bytes_(bytes), refuses_(refuses), calls_(calls) {}

  Reason supports(const Attention& shape) const override {
    if (refuses_ && shape.dropout.active()) return "no dropout";
    return {};
  }
  std::size_t saved_bytes(const Attention&) const override { return bytes_; }
  std::size_t workspace(const Attention&) const override { return 10 * bytes_; }
  void forward(const Attention&, Stream&) override { calls_.push_back(name_ + " forward"); }
  void backward(const AttentionGradient&, Stream&) override { calls_.push_back(name_ + " backward"); }

 private:
  std::string name_;
  std::size_t bytes_;
  bool refuses_;
  std::vector<std::string>& calls_;
};

class ChosenAttentionTest : public ::testing::Test {
 protected:
  struct NoStream : Stream {};

  void run(ChosenAttention& chosen, float dropout) {
    Attention shape;
    shape.dropout.p = dropout;
    chosen.forward(shape, stream_);
    chosen.backward({shape, {}, {}, {}, {}}, stream_);
  }

  NoStream stream_;
  std::vector<std::string> calls_, lines_;
  Double own_{"own", 8, false, calls_};
  ChosenAttention::Log log_ = [this](const std::string& line) { lines_.push_back(line); };
};

TEST_F(ChosenAttentionTest, TheLibraryWhereItTakesTheProblem) {
  ChosenAttention chosen(own_, std::make_unique<Double>("library", 4, true, calls_), log_);
  run(chosen, 0);
  run(chosen, 0.1f);
  run(chosen, 0);
  EXPECT_EQ(calls_, (std::vector<std::string>{"library forward", "library backward", "own forward", "own backward",
                                              "library forward", "library backward"}));
  ASSERT_EQ(lines_.size(), 2u) << "each way is said once";
  EXPECT_NE(lines_[0].find("cuDNN"), std::string::npos);
  EXPECT_NE(lines_[1].find("no dropout"), std::string::npos);
}

TEST_F(ChosenAttentionTest, OwnKernelsWithoutALibrary) {
  ChosenAttention chosen(own_, nullptr, log_);
  run(chosen, 0);
  EXPECT_EQ(calls_, (std::vector<std::string>{"own forward", "own backward"}));
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(ChosenAttentionTest, MemoryIsEnoughForEither) {
  ChosenAttention small(own_, std::make_unique<Double>("library", 4, true, calls_), log_);
  ChosenAttention large(own_, std::make_unique<Double>("library", 16, true, calls_), log_);
  EXPECT_EQ(small.saved_bytes({}), 8u);
  EXPECT_EQ(large.saved_bytes({}), 16u);
  EXPECT_EQ(small.workspace({}), 80u);
  EXPECT_EQ(large.workspace({}), 160u);
}

}  // namespace
}  // namespace espalier::kernels_fused::cuda
