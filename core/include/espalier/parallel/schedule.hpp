#pragma once

#include <cstdint>
#include <string_view>

namespace espalier {

enum class Mode : std::uint8_t { train, forward_only };

/// One instruction of a stage's list. A schedule is data: the executor runs it, the planner times it, the checker proves it.
enum class Do : std::uint8_t {
  forward,
  backward,         ///< both halves
  backward_input,   ///< input gradients, norm and bias gradients; keeps what the weight half needs
  backward_weight,  ///< weight gradients of the linear maps
  send_activation,
  receive_activation,
  send_gradient,
  receive_gradient,
  reduce_gradients,       ///< over the data group, then what is partial over the tensor group
  reduce_tied_gradients,  ///< first and last stage
  step,
};

constexpr std::string_view name_of(Do what) {
  constexpr std::string_view kNames[] = {"forward",         "backward",        "backward_input",        "backward_weight",
                                         "send_activation", "receive_activation", "send_gradient",      "receive_gradient",
                                         "reduce_gradients", "reduce_tied_gradients", "step"};
  return kNames[static_cast<std::size_t>(what)];
}

struct Instruction {
  Do what = Do::forward;
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;  ///< virtual stage on this rank
  std::int32_t peer = 0;   ///< rank in the pipeline group, for sends and receives
  bool operator==(const Instruction&) const = default;
};

}  // namespace espalier
