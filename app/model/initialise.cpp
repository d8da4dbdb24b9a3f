#include "model/initialise.hpp"

#include <cmath>

#include "espalier/random.hpp"
#include "model/layout.hpp"

namespace espalier::app {
namespace {

enum class Fill : std::uint8_t { zero, one, normal, uniform };

struct Rule {
  Fill fill = Fill::zero;
  double size = 0;  ///< standard deviation, or half the width of the uniform range
};

Rule rule_for(Role role, const ModelShape& shape, const InitialWeights& how) {
  const double scaled = how.std / std::sqrt(2.0 * static_cast<double>(shape.layers));
  switch (role) {
    case Role::word_embedding:
      if (how.embedding == EmbeddingInit::xavier_uniform)
        return {Fill::uniform, std::sqrt(6.0 / static_cast<double>(shape.vocab + shape.hidden))};
      return {Fill::normal, how.std};
    case Role::position_embedding:
    case Role::qkv_weight:
    case Role::mlp_up_weight:
    case Role::head_weight:
      return {Fill::normal, how.std};
    case Role::attention_out_weight:
    case Role::mlp_down_weight:
      return {Fill::normal, scaled};
    case Role::norm_weight:
      return {Fill::one, 0};
    case Role::norm_bias:
    case Role::qkv_bias:
    case Role::attention_out_bias:
    case Role::mlp_up_bias:
    case Role::mlp_down_bias:
      return {Fill::zero, 0};
  }
  return {};
}

}  // namespace

void initialise(const ModelShape& shape, const InitialWeights& how, std::span<const LocalParameter> parameters,
                DataParallel& data, Backend& backend) {
  Device& device = backend.device();
  RandomKernels& random = *backend.kernels().random;
  Stream& stream = device.lane(Lane::compute);
  for (const StatePiece& piece : data.state()) {
    if (piece.state != "master") continue;
    const LocalParameter& local = parameters[static_cast<std::size_t>(piece.parameter)];
    const Rule rule = rule_for(local.parameter.role, shape, how);
    const PhiloxKey key =
        make_key(how.seed, RandomUse::initial_weight, static_cast<std::uint64_t>(local.parameter.index));
    for_each_run(local, piece, [&](const Run& run) {
      const View dst = piece.data.flat_range(run.local - piece.begin, run.local - piece.begin + run.length);
      if (run.logical < 0 || rule.fill == Fill::zero) {
        device.fill_zero(dst, stream);
      } else if (rule.fill == Fill::uniform) {
        random.uniform(dst, key, run.logical, -rule.size, rule.size, stream);
      } else {
        // A spread of 0 gives the mean exactly: how norm weights become 1.
        const bool one = rule.fill == Fill::one;
        random.normal(dst, key, run.logical, one ? 1.0 : 0.0, one ? 0.0 : rule.size, stream);
      }
    });
  }
  data.refresh(stream);
  device.wait(stream);
}

}  // namespace espalier::app
