// A parameter list with every kind of role, and gradients that are a function of (parameter, element, micro-batch, data
// rank, step).
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/parallel/data.hpp"
#include "espalier/random.hpp"
#include "support/doubles/plain_backend.hpp"

namespace espalier::testing_support {

/// Layer 0 embedding (tied), 1 … 2 blocks, 3 final norm. Sizes that divide by nothing.
inline std::vector<Parameter> toy_parameters() {
  std::vector<Parameter> list = {
      {"word_embeddings.weight", {13, 7}, Role::word_embedding, 0, true, true},
      {"word_embeddings_layernorm.weight", {7}, Role::norm_weight, 0, false, false},
      {"h.0.mlp.dense_h_to_4h.weight", {28, 7}, Role::mlp_up_weight, 1, false, true},
      {"h.0.mlp.dense_h_to_4h.bias", {28}, Role::mlp_up_bias, 1, false, false},
      {"h.1.mlp.dense_h_to_4h.weight", {28, 7}, Role::mlp_up_weight, 2, false, true},
      {"h.1.mlp.dense_4h_to_h.weight", {7, 28}, Role::mlp_down_weight, 2, false, true},
      {"h.1.mlp.dense_4h_to_h.bias", {7}, Role::mlp_down_bias, 2, false, false},
      {"ln_f.weight", {7}, Role::norm_weight, 3, false, false},
      {"ln_f.bias", {7}, Role::norm_bias, 3, false, false},
  };
  for (std::size_t i = 0; i < list.size(); ++i) list[i].index = static_cast<int>(i);
  return list;
}

/// The list as a tensor group of one holds it.
inline std::vector<LocalParameter> whole(const std::vector<Parameter>& parameters) {
  std::vector<LocalParameter> locals;
  for (const Parameter& p : parameters) {
    locals.push_back({p, {Copies::whole, -1, 0, p.shape[0], p.shape[0], p.shape}});
  }
  return locals;
}

/// In (−1, 1), spread over some powers of two so that the order of a sum shows in its last bit.
inline float toy_number(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  const PhiloxCounter words = philox({static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b)},
                                     {static_cast<std::uint32_t>(c), static_cast<std::uint32_t>(c >> 32), 0, 0});
  const float mantissa = static_cast<float>(words[0]) / 4294967296.0f * 2.0f - 1.0f;
  return std::ldexp(mantissa, -static_cast<int>(words[1] % 12));
}

inline float toy_gradient(int parameter, std::int64_t element, int micro_batch, int data_rank, int step) {
  return toy_number(static_cast<std::uint64_t>(parameter) * 64 + static_cast<std::uint64_t>(step),
                    static_cast<std::uint64_t>(data_rank) * 64 + static_cast<std::uint64_t>(micro_batch),
                    static_cast<std::uint64_t>(element));
}
inline float toy_weight(int parameter, std::int64_t element) {
  return toy_number(static_cast<std::uint64_t>(parameter), 1000, static_cast<std::uint64_t>(element));
}

/// Writes toy weights into the master pieces and rounds them into the working weights.
inline void fill_weights(DataParallel& strategy, const std::vector<LocalParameter>& locals, Stream& stream) {
  for (const StatePiece& piece : strategy.state()) {
    if (piece.state != "master") continue;
    const int index = locals[static_cast<std::size_t>(piece.parameter)].parameter.index;
    for (std::int64_t i = piece.begin; i < piece.end; ++i) store(piece.data, i - piece.begin, toy_weight(index, i));
  }
  strategy.refresh(stream);
}

/// One backward of the toy: the tied embedding is written twice (half by the head, half by the embedding), all else
/// once.
inline void write_gradients(DataParallel& strategy, const std::vector<LocalParameter>& locals, int micro_batch,
                            int data_rank, int step, Stream& stream) {
  const auto write = [&](std::size_t p, float share) {
    const GradientSlot slot = strategy.gradient(static_cast<int>(p), micro_batch);
    for (std::int64_t i = 0; i < slot.where.elements(); ++i) {
      const float value = share * toy_gradient(locals[p].parameter.index, i, micro_batch, data_rank, step);
      store(slot.where, i, slot.add ? load(slot.where, i) + value : value);
    }
  };
  int last = -1;
  for (const LocalParameter& local : locals) last = std::max(last, local.parameter.layer);
  for (int layer = last; layer >= 0; --layer) {
    strategy.acquire(layer, Need::all, stream);
    for (std::size_t p = 0; p < locals.size(); ++p) {
      if (locals[p].parameter.tied && (layer == last || layer == 0)) {
        write(p, layer == last ? 0.25f : 0.75f);
      } else if (locals[p].parameter.layer == layer && !locals[p].parameter.tied) {
        write(p, 1.0f);
      }
    }
    for (const Half half : {Half::input, Half::weight}) strategy.written(layer, micro_batch, half, stream);
    strategy.release(layer, Need::all);
  }
}

}  // namespace espalier::testing_support
