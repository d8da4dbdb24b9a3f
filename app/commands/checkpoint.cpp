#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "checkpoint/reader.hpp"
#include "checkpoint/store.hpp"
#include "commands/commands.hpp"
#include "espalier/error.hpp"

namespace espalier::app {
namespace {

constexpr ArgSpec kArgs[] = {
    {"CHECKPOINT", ArgType::string, "a step_N folder, a folder of checkpoints (its newest), or a run's folder", true},
    {"--tensors", ArgType::flag, "also list every tensor: shape, dtype, files, rms, largest value"},
    {"--verify", ArgType::flag, "read everything and compare checksums"},
};

void print_summary(const std::filesystem::path& folder, const Manifest& manifest) {
  const auto line = [](std::string_view name, const std::string& value) { fmt::print("{:<20}{}\n", name, value); };
  line("checkpoint", folder.string());
  line("step", std::to_string(manifest.train.step));
  line("consumed samples", std::to_string(manifest.train.samples));
  line("applied steps", fmt::format("{} ({} skipped, {} not finite)", manifest.train.applied_steps, manifest.train.skipped_steps,
                                    manifest.train.nan_steps));
  const ModelShape& model = manifest.model;
  line("model", fmt::format("{} layers, hidden {}, {} heads, vocabulary {} (tokenizer {}), sequence {}", model.layers, model.hidden,
                            model.heads, model.vocab, model.tokenizer_vocab, model.seq_length));
  line("optimizer", manifest.optimizer);
  for (const auto& [name, value] : manifest.scalars) line("  " + name, fmt::format("{}", value));
  line("written by", fmt::format("tensor {} x pipeline {} x data {}; {}", manifest.grid.tensor, manifest.grid.pipeline,
                                 manifest.grid.data, manifest.provider));
  line("seed", std::to_string(manifest.seed));
  line("tokenizer", manifest.tokenizer);
  line("data fingerprint", manifest.data_fingerprint);

  struct Sum {
    std::int64_t tensors = 0, elements = 0;
    std::uint64_t bytes = 0;
  };
  std::map<std::string, Sum> states;
  for (const StoredTensor& tensor : manifest.tensors) {
    Sum& sum = states[tensor.state];
    sum.tensors += 1;
    sum.elements += tensor.shape.elements();
    for (const StoredSlice& slice : tensor.slices) sum.bytes += slice.bytes;
  }
  for (const auto& [state, sum] : states) {
    line(state, fmt::format("{} tensors, {} elements, {} bytes", sum.tensors, sum.elements, sum.bytes));
  }
}

void print_tensors(const CheckpointReader& reader) {
  for (const StoredTensor& tensor : reader.manifest().tensors) {
    const std::vector<float> values = reader.read_tensor(tensor);
    double squares = 0, largest = 0;
    for (const float value : values) {
      squares += static_cast<double>(value) * value;
      largest = std::max(largest, std::fabs(static_cast<double>(value)));
    }
    fmt::print("{:<55} {:<8} {:<16} {} slices {:>3}  rms {:.6e}  max {:.6e}\n", tensor.parameter, tensor.state, to_string(tensor.shape),
               name_of(tensor.dtype), tensor.slices.size(), std::sqrt(squares / static_cast<double>(std::max<std::size_t>(values.size(), 1))),
               largest);
  }
}

int run(const Args& args) {
  const CheckpointStore::Found found = find_checkpoint(args.string("CHECKPOINT"));
  if (!found.note.empty()) std::cerr << found.note << "\n";
  const CheckpointReader reader(found.path);
  print_summary(found.path, reader.manifest());
  if (args.flag("--tensors")) {
    print_tensors(reader);
  } else if (args.flag("--verify")) {
    for (const StoredTensor& tensor : reader.manifest().tensors) (void)reader.read_tensor(tensor);
  }
  if (args.flag("--verify")) fmt::print("all checksums match\n");
  return 0;
}

}  // namespace

const Command kCheckpointInspect{"checkpoint inspect",
                                 "what a checkpoint holds: progress, model, optimizer, layout, tensors",
                                 "  trainer checkpoint inspect runs/quickstart/checkpoints --verify\n"
                                 "Any checkpoint may be loaded by any layout; nothing in it is executable.",
                                 kArgs,
                                 run, true};

}  // namespace espalier::app
