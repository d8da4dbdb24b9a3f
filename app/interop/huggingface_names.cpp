#include "interop/huggingface_names.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

/// Our names are BLOOM's; GPT-2 has its own for the parts of a block and for the ends.
constexpr std::pair<std::string_view, std::string_view> kGpt2Parts[] = {
    {"input_layernorm.", "ln_1."},
    {"self_attention.query_key_value.", "attn.c_attn."},
    {"self_attention.dense.", "attn.c_proj."},
    {"post_attention_layernorm.", "ln_2."},
    {"mlp.dense_h_to_4h.", "mlp.c_fc."},
    {"mlp.dense_4h_to_h.", "mlp.c_proj."},
};

std::string gpt2_name(std::string_view name) {
  if (name == "word_embeddings.weight") return "wte.weight";
  if (name == "position_embeddings.weight") return "wpe.weight";
  if (!name.starts_with("h.")) return std::string(name);  // ln_f, lm_head
  const std::size_t dot = name.find('.', 2) + 1;
  const std::string_view rest = name.substr(dot);
  const auto part = std::find_if(std::begin(kGpt2Parts), std::end(kGpt2Parts),
                                 [&](const auto& pair) { return rest.starts_with(pair.first); });
  ESPALIER_ASSERT(part != std::end(kGpt2Parts));
  return std::string(name.substr(0, dot)) + std::string(part->second) + std::string(rest.substr(part->first.size()));
}

}  // namespace

std::string_view name_of(Family family) { return family == Family::bloom ? "bloom" : "gpt2"; }

Family family_of(const ModelShape& shape) {
  const auto refuse = [](const char* why) {
    return IoError(std::string("no model class of transformers computes this model: ") + why +
                   "; it can be kept as a checkpoint only");
  };
  if (shape.positions > 0) {
    if (shape.embedding_norm)
      throw refuse("learned positions (as GPT-2) with a LayerNorm after the embedding (as BLOOM)");
    return Family::gpt2;
  }
  if (!shape.embedding_norm) throw refuse("ALiBi (as BLOOM) without a LayerNorm after the embedding (as GPT-2)");
  if (shape.ffn != 4 * shape.hidden) throw refuse("BLOOM's ffn is 4 * hidden");
  return Family::bloom;
}

FileLayout file_layout(Family family, const Parameter& parameter) {
  FileLayout layout;
  layout.name = family == Family::bloom ? std::string(parameter.name) : gpt2_name(parameter.name);
  layout.shape.assign(parameter.shape.dims().begin(), parameter.shape.dims().end());
  if (family == Family::bloom) return layout;
  layout.parts_apart = parameter.role == Role::qkv_weight || parameter.role == Role::qkv_bias;
  layout.transposed = parameter.role == Role::qkv_weight || parameter.role == Role::attention_out_weight ||
                      parameter.role == Role::mlp_up_weight || parameter.role == Role::mlp_down_weight;
  if (layout.transposed) std::reverse(layout.shape.begin(), layout.shape.end());
  return layout;
}

bool is_buffer(Family family, std::string_view name) {
  return family == Family::gpt2 && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

}  // namespace espalier::app
