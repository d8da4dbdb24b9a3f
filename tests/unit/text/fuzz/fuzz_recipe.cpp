// libFuzzer: recipes. The first byte says whether the rest is a recipe or a --set of one; both must be taken or refused
// with the errors that users see.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "config/load.hpp"
#include "espalier/error.hpp"
#include "text/tokenizers/open.hpp"

/// Options of the built-in tokenizers, without the tokenizers themselves.
std::span<const espalier::OptionSpec> espalier::app::tokenizer_options(std::string_view name) {
  if (name == kHuggingFaceTokenizer) return kHuggingFaceOptions;
  return {};
}

namespace {

using namespace espalier::app;

constexpr std::string_view kGood = R"(
[model]
layers = 2
hidden = 32
heads = 2
vocab_size = 320
seq_length = 16
[train]
train_iters = 30
global_batch_size = 4
micro_batch_size = 2
lr = 1e-2
[optimizer]
plugin = "optim_fp32"
)";

constexpr espalier::OptionSpec kOptions[] = {
    {"stage", espalier::OptionType::integer, "1", "a number", 0.0, 3.0},
    {"weight_decay", espalier::OptionType::number, "0.1", "another", 0.0},
    {"betas", espalier::OptionType::numbers, "[0.9, 0.95]", "two of them", 0.0, 1.0},
    {"name", espalier::OptionType::string, "\"\"", "a word"},
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  // Another file may be named; what the machine has must not be read here.
  if (rest.find("include") != std::string::npos) return 0;
  const bool whole = data[0] % 2 == 0;
  const std::string_view text = whole ? std::string_view(rest) : kGood;
  const int file = ::memfd_create("recipe", 0);
  if (file < 0 || ::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
  RecipeRequest request;
  request.file = "/proc/self/fd/" + std::to_string(file);
  if (!whole) request.overrides = {rest};
  try {
    load_recipe(request, [](const PluginChoice&, const std::vector<std::string>&) { return std::span(kOptions); });
  } catch (const espalier::ConfigError&) {
    // Refused, with every problem: that is fine.
  } catch (const espalier::PluginError&) {
  }
  ::close(file);
  return 0;
}
