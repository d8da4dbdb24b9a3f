#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "espalier/kernels.hpp"

namespace espalier::kernels_fused::cuda {

/// A library's attention where it takes the shape, else our own. Shape, strides and alignment of the operands decide,
/// so forward and backward of one problem go the same way.
class ChosenAttention final : public AttentionKernels {
 public:
  using Log = std::function<void(const std::string&)>;

  /// @param own      kept by reference; takes every shape
  /// @param library  null where there is none
  /// @param log      gets one line for each way that is taken, with the reason
  ChosenAttention(AttentionKernels& own, std::unique_ptr<AttentionKernels> library, Log log);

  Reason supports(const Attention& shape) const override { return own_.supports(shape); }
  /// Enough for either: operands may still be unknown when this is asked.
  std::size_t saved_bytes(const Attention& shape) const override;
  std::size_t workspace(const Attention& shape) const override;
  void forward(const Attention& args, Stream& stream) override;
  void backward(const AttentionGradient& args, Stream& stream) override;

 private:
  AttentionKernels& choose(const Attention& args);

  AttentionKernels& own_;
  std::unique_ptr<AttentionKernels> library_;
  Log log_;
  std::set<std::string> said_;
};

}  // namespace espalier::kernels_fused::cuda
