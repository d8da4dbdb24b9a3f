#include "session/builtins.hpp"

#include <iterator>

#include "config/recipe.hpp"
#include "session/host_context.hpp"
#include "text/byte_tokenizer.hpp"
#include "text/completions_dataset.hpp"
#include "text/synthetic_dataset.hpp"
#include "text/tokenizers/open.hpp"

namespace espalier::app {
namespace {

template <class Interface>
void destroy(Interface* object) noexcept {
  delete object;
}

Backend* make_backend(const ConfigView&, HostContext& host) { return make_reference_backend(host.threads()).release(); }
TensorParallel* make_tensor(const ConfigView&, HostContext&) { return make_whole_tensors().release(); }
PipelineParallel* make_pipeline(const ConfigView&, HostContext&) { return make_single_stage().release(); }
DataParallel* make_data(const ConfigView&, HostContext&) { return make_single_replica().release(); }
Dataset* make_dataset(const ConfigView&, HostContext& host) { return make_synthetic_dataset(host.facts()).release(); }
Dataset* make_completions(const ConfigView& config, HostContext& host) {
  const auto* own = dynamic_cast<const ComponentHost*>(&host);
  return make_completions_dataset(config, host, own == nullptr ? nullptr : own->tokenizer()).release();
}
Tokenizer* make_tokenizer(const ConfigView&, HostContext&) { return new ByteTokenizer; }
Tokenizer* make_huggingface(const ConfigView& config, HostContext& host) {
  return make_huggingface_tokenizer(config, host).release();
}
Tokenizer* make_sentencepiece(const ConfigView& config, HostContext& host) {
  return make_sentencepiece_tokenizer(config, host).release();
}

constexpr Factory kReference[] = {factory<Backend, make_backend, destroy<Backend>>("reference")};
constexpr Factory kOneRank[] = {factory<TensorParallel, make_tensor, destroy<TensorParallel>>("whole_tensors"),
                                factory<PipelineParallel, make_pipeline, destroy<PipelineParallel>>("single_stage"),
                                factory<DataParallel, make_data, destroy<DataParallel>>("single_replica")};
constexpr Factory kSynthetic[] = {factory<Dataset, make_dataset, destroy<Dataset>>("synthetic")};
constexpr Factory kCompletions[] = {factory<Dataset, make_completions, destroy<Dataset>>(
    kCompletionsDataset.data(), kCompletionsOptions, std::size(kCompletionsOptions))};
constexpr Factory kBytes[] = {factory<Tokenizer, make_tokenizer, destroy<Tokenizer>>("bytes")};
constexpr Factory kHuggingFace[] = {factory<Tokenizer, make_huggingface, destroy<Tokenizer>>(
    kHuggingFaceTokenizer.data(), kHuggingFaceOptions, std::size(kHuggingFaceOptions))};
constexpr Factory kSentencePiece[] = {factory<Tokenizer, make_sentencepiece, destroy<Tokenizer>>(
    kSentencePieceTokenizer.data(), kSentencePieceOptions, std::size(kSentencePieceOptions))};

}  // namespace

void add_builtins(PluginHost& host) {
  static const PluginDescriptor descriptors[] = {
      builtin_descriptor(kBuiltInBackend.data(), "plain-loop CPU kernels: the oracle", kReference),
      builtin_descriptor(kBuiltInStrategy.data(), "one rank: whole tensors, one stage, one replica", kOneRank),
      builtin_descriptor(kBuiltInDataset.data(), "text from a random Markov chain", kSynthetic),
      builtin_descriptor(kCompletionsDataset.data(), "pairs of prompt and completion, for fine-tuning", kCompletions),
      builtin_descriptor(kBuiltInTokenizer.data(), "every byte is a token", kBytes),
      builtin_descriptor(kHuggingFaceTokenizer.data(), "byte-level BPE of a tokenizer.json", kHuggingFace),
      builtin_descriptor(kSentencePieceTokenizer.data(), "a SentencePiece model", kSentencePiece),
  };
  for (const PluginDescriptor& descriptor : descriptors) host.add_builtin(descriptor);
}

}  // namespace espalier::app
