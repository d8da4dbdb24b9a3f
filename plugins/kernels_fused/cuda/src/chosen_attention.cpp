#include "chosen_attention.hpp"

#include <algorithm>
#include <utility>

namespace espalier::kernels_fused::cuda {

ChosenAttention::ChosenAttention(AttentionKernels& own, std::unique_ptr<AttentionKernels> library, Log log)
    : own_(own), library_(std::move(library)), log_(std::move(log)) {}

std::size_t ChosenAttention::saved_bytes(const Attention& shape) const {
  const std::size_t own = own_.saved_bytes(shape);
  return library_ == nullptr ? own : std::max(own, library_->saved_bytes(shape));
}

std::size_t ChosenAttention::workspace(const Attention& shape) const {
  const std::size_t own = own_.workspace(shape);
  return library_ == nullptr ? own : std::max(own, library_->workspace(shape));
}

void ChosenAttention::forward(const Attention& args, Stream& stream) { choose(args).forward(args, stream); }

void ChosenAttention::backward(const AttentionGradient& args, Stream& stream) {
  choose(args.forward).backward(args, stream);
}

AttentionKernels& ChosenAttention::choose(const Attention& args) {
  const Reason reason = library_ == nullptr ? Reason("cuDNN is not used") : library_->supports(args);
  const std::string way =
      reason ? "attention: own softmax between products of cuBLASLt (" + *reason + ")" : "attention: cuDNN";
  if (said_.insert(way).second && log_) log_(way);
  return reason ? own_ : *library_;
}

}  // namespace espalier::kernels_fused::cuda
