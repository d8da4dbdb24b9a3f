#include "model/gather.hpp"

#include <algorithm>

#include "model/layout.hpp"

namespace espalier::app {

void sum_over_world(std::span<float> values, Backend& backend, Communicator& world) {
  if (world.size() == 1 || values.empty()) return;
  Device& device = backend.device();
  Stream& stream = device.lane(Lane::compute);
  const auto n = static_cast<std::int64_t>(values.size());
  const View host = View::vector(values.data(), n, DType::f32);
  const DeviceMemory memory = device.reserve(host.bytes(), "gathering");
  const View buffer = View::vector(memory.data(), n, DType::f32);
  device.copy(host, buffer, stream);
  world.finish(world.start_all_reduce(buffer, Reduce::sum_rank_order, stream), stream);
  device.wait(stream);  // until here the host's values are the source of a copy
  device.copy(buffer, host, stream);
  device.wait(stream);
}

std::vector<float> gather_logical(const Parameter& parameter, std::string_view state,
                                  std::span<const StatePiece> pieces, std::span<const LocalParameter> parameters,
                                  Backend& backend, Communicator& world) {
  Device& device = backend.device();
  Stream& stream = device.lane(Lane::compute);
  std::vector<float> whole(static_cast<std::size_t>(parameter.shape.elements()), 0.0f);
  for (const StatePiece& piece : pieces) {
    if (piece.parameter < 0 || piece.state != state || !piece.writes) continue;
    const LocalParameter& local = parameters[static_cast<std::size_t>(piece.parameter)];
    if (local.parameter.index != parameter.index) continue;
    for_each_run(local, piece, [&](const Run& run) {
      if (run.logical < 0) return;
      const std::int64_t begin = run.local - piece.begin;
      device.copy(piece.data.flat_range(begin, begin + run.length),
                  View::vector(whole.data() + run.logical, run.length, DType::f32), stream);
    });
  }
  device.wait(stream);
  sum_over_world(whole, backend, world);
  return whole;
}

}  // namespace espalier::app
