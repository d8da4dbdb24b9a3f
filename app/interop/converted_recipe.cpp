#include "interop/converted_recipe.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "config/toml.hpp"
#include "text/tokenizers/open.hpp"

namespace espalier::app {

std::string converted_recipe(const ModelShape& shape, const std::string& origin, const std::string& tokenizer) {
  return fmt::format(
      "# Made by trainer convert from {}.\n"
      "[run]\ndir = \"runs/converted\"\n\n"
      "[model]\nlayers = {}\nhidden = {}\nheads = {}\nffn = {}\nvocab_size = {}\nseq_length = {}\n{}"
      "embedding_norm = {}\ntied_head = {}\nattention_dropout = {}\nhidden_dropout = {}\nlayernorm_epsilon = {}\n\n"
      "[train]\ntrain_iters = 1\nglobal_batch_size = 1\nmicro_batch_size = 1\nlr = 0.0\nlr_decay_style = "
      "\"constant\"\n\n"
      "[optimizer]\nplugin = \"optim_fp32\"\n\n[data]\nplugin = \"synthetic\"\n{}",
      toml_string(origin), shape.layers, shape.hidden, shape.heads, shape.ffn, shape.vocab, shape.seq_length,
      shape.positions > 0 ? fmt::format("position = \"learned\"\npositions = {}\n", shape.positions) : "",
      shape.embedding_norm, shape.tied_head, shape.attention_dropout, shape.hidden_dropout, shape.norm_eps,
      tokenizer.empty() ? "" : "\n[tokenizer]\n" + tokenizer);
}

std::string tokenizer_section(const std::vector<std::filesystem::path>& files, const std::filesystem::path& folder) {
  auto file = std::ranges::find(files, "tokenizer.json", [](const auto& path) { return path.filename().string(); });
  const bool json = file != files.end();
  if (!json) file = std::ranges::find(files, ".model", [](const auto& path) { return path.extension().string(); });
  if (file == files.end()) return "";
  return fmt::format("plugin = \"{}\"\nfile = {}\n", json ? kHuggingFaceTokenizer : kSentencePieceTokenizer,
                     toml_string((folder / file->filename()).string()));
}

}  // namespace espalier::app
