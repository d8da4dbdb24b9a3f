#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/communicator.hpp"
#include "interop/safetensors.hpp"
#include "session/session.hpp"

namespace espalier::app {

/// Token samples [samples, seq + 1] of a batch file's `input_ids`.
struct NumericsBatch {
  std::int64_t samples = 0;
  std::int64_t seq = 0;
  std::vector<std::int64_t> tokens;
};

/// @throws IoError naming the file: no I64 [batch, seq + 1], or an id outside of [0, vocab).
NumericsBatch read_numerics_batch(const SafetensorsFile& file, std::int64_t vocab);

/// One forward and backward of a model over a batch, whatever the layout: rank 0 of the world writes `logits` [samples,
/// seq, vocab], `loss` [1] and `grad.<Hugging Face name>` of every parameter, all FP32. Samples are shared out over the
/// data group; where they do not come out even, masked ones fill up. Collective over the world.
/// @param fill  loads the master weights; called once the memory is there.
void run_numerics(Session& session, const NumericsBatch& batch, const std::filesystem::path& out,
                  FunctionRef<void()> fill);

/// Hugging Face's name of a parameter: "transformer.h.0.…", but "lm_head.weight".
std::string hugging_face_name(std::string_view parameter);

}  // namespace espalier::app
