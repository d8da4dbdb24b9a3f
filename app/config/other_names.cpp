#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "config/sections.hpp"

namespace espalier::app {

namespace {

struct Name {
  std::string_view there;
  std::string_view here;
};

// Sources: Megatron-LM and bigscience Megatron-DeepSpeed (arguments.py), DeepSpeed's JSON configuration.
constexpr Name kNames[] = {
    {"num_layers", "model.layers"},
    {"hidden_size", "model.hidden"},
    {"num_attention_heads", "model.heads"},
    {"ffn_hidden_size", "model.ffn"},
    {"pad_vocab_size_to", "model.vocab_size"},
    {"padded_vocab_size", "model.vocab_size"},
    {"max_position_embeddings", "model.seq_length"},
    {"sequence_length", "model.seq_length"},
    {"position_embedding_type", "model.position"},
    {"embed_layernorm", "model.embedding_norm"},
    {"untie_embeddings_and_output_weights", "model.tied_head"},
    {"norm_epsilon", "model.layernorm_epsilon"},
    {"tensor_model_parallel_size", "parallel.tensor.size"},
    {"pipeline_model_parallel_size", "parallel.pipeline.size"},
    {"sequence_parallel", "parallel.tensor.sequence_parallel (an option of the plugin)"},
    {"zero_stage", "parallel.data.stage (an option of the plugin)"},
    {"zero_optimization", "parallel.data.stage (an option of the plugin)"},
    {"use_distributed_optimizer", "parallel.data.stage (an option of the plugin)"},
    {"train_batch_size", "train.global_batch_size"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch_size"},
    {"train_steps", "train.train_iters"},
    {"gradient_clipping", "train.clip_grad"},
    {"lr_warmup_iters", "train.lr_warmup_samples"},
    {"lr_decay_iters", "train.lr_decay_samples"},
    {"learning_rate", "train.lr"},
    {"recompute_granularity", "train.recompute"},
    {"checkpoint_activations", "train.recompute"},
    {"weight_decay", "optimizer.weight_decay (an option of the plugin)"},
    {"adam_beta1", "optimizer.betas (an option of the plugin)"},
    {"adam_beta2", "optimizer.betas (an option of the plugin)"},
    {"adam_eps", "optimizer.eps (an option of the plugin)"},
    {"bf16", "optimizer.plugin = \"optim_bf16\""},
    {"fp16", "optimizer.plugin = \"optim_fp16\""},
    {"data_path", "data.paths (an option of the plugin)"},
    {"tokenizer_type", "tokenizer.plugin"},
    {"eval_interval", "eval.interval"},
    {"eval_iters", "eval.samples"},
    {"log_interval", "log.interval"},
    {"async_save", "checkpoint.async"},
    {"load",
     "checkpoint.load_model (weights to start from), checkpoint.load (a checkpoint to go on from) and "
     "checkpoint.load_optimizer"},
    {"finetune", "checkpoint.load_model"},
    {"pretrained_checkpoint", "checkpoint.load_model"},
};

}  // namespace

std::string_view other_name(std::string_view key) {
  for (const Name& name : kNames) {
    if (name.there == key) return name.here;
  }
  return {};
}

std::span<const std::string_view> other_names() {
  static const std::vector<std::string_view> list = [] {
    std::vector<std::string_view> names;
    std::transform(std::begin(kNames), std::end(kNames), std::back_inserter(names),
                   [](const Name& name) { return name.there; });
    return names;
  }();
  return list;
}

}  // namespace espalier::app
