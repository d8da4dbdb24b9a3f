#include "text/generation.hpp"

#include <vector>

#include "espalier/error.hpp"
#include "text/utf8.hpp"

namespace espalier::app {

std::vector<std::int32_t> prompt_ids(const Tokenizer& tokenizer, std::string_view prompt) {
  if (const std::size_t bad = find_invalid_utf8(prompt); bad != std::string_view::npos) {
    throw ConfigError("prompt: byte " + std::to_string(bad + 1) + " is not UTF-8");
  }
  std::vector<std::int32_t> ids;
  tokenizer.encode(prompt, ids);
  if (ids.empty()) {
    if (tokenizer.end_of_document() < 0)
      throw ConfigError("prompt: is empty, and tokenizer " + tokenizer.fingerprint() + " has no id to start from");
    ids.push_back(tokenizer.end_of_document());
  }
  return ids;
}

Continuation continue_text(Decoder& decoder, const Tokenizer& tokenizer, Sampler& sampler, std::string_view prompt,
                           std::int64_t request, std::int64_t tokens, bool ignore_end,
                           const std::function<void(std::string_view)>& out) {
  Continuation result;
  const std::vector<std::int32_t> ids = prompt_ids(tokenizer, prompt);
  result.prompt_tokens = static_cast<std::int64_t>(ids.size());
  std::vector<float> logits(static_cast<std::size_t>(decoder.columns()));
  Utf8Stream text;
  decoder.reset(0);
  if (tokens > 0) decoder.extend(0, ids, logits);
  while (result.tokens < tokens) {
    const std::int32_t token = sampler.draw(logits, request, result.prompt_tokens + result.tokens);
    ++result.tokens;
    result.end_of_document = token == tokenizer.end_of_document();
    if (result.end_of_document && !ignore_end) break;
    out(text.push(tokenizer.decode({&token, 1})));
    if (result.tokens == tokens) break;  // nothing is drawn from the next logits
    const Decoder::Next next{0, token};
    decoder.step({&next, 1}, logits);
  }
  out(text.finish());
  return result;
}

}  // namespace espalier::app
