#include "start_table.hpp"

#include <algorithm>
#include <cstdio>

namespace espalier::data_indexed {
namespace {

std::string number(std::int64_t value) { return std::to_string(value); }

std::string decimal(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// Of a validation set: parts whose text is not enough for the samples that are asked of them.
void warn_of_repetition(HostContext& host, const BlendedSet& set, std::int64_t samples, std::int64_t seq_length) {
  if (set.split() != Split::valid) return;
  for (const SetPart& part : set.parts()) {
    if (part.request.samples_wanted == 0) continue;  // all of it once
    const double wanted = static_cast<double>(samples) * part.normalised_weight * static_cast<double>(seq_length);
    const double times = wanted / static_cast<double>(part.reader->arrays().plan().tokens_per_epoch);
    if (times <= 1.0) continue;
    host.log(LogLevel::warning,
             "set \"" + set.name() + "\": " + number(samples) + " samples (eval.samples) read " + part.file->prefix() +
                 " " + decimal(times, "%.2f") +
                 " times over in each evaluation; fewer samples, or 0 for all of it once, measure as well");
  }
}

}  // namespace

void log_set(HostContext& host, const BlendedSet& set, std::int64_t samples, std::int64_t seq_length) {
  warn_of_repetition(host, set, samples, seq_length);
  const std::string summary =
      "set \"" + set.name() + "\": " + number(samples) + " samples of " + number(seq_length) + " + 1 tokens";
  if (set.split() != Split::train && set.parts().size() == 1) {  // the usual validation set of one language
    const SetPart& part = set.parts().front();
    host.log(LogLevel::info, summary + " from " + part.file->prefix() + " (" + number(part.request.range.count()) +
                                 " " + unit_of(*part.file) + ", " +
                                 number(part.reader->arrays().plan().tokens_per_epoch) + " tokens)");
    return;
  }
  host.log(LogLevel::info, summary + (set.parts().size() == 1 ? ""
                                      : set.blended()         ? ", blended by weight (shares of samples)"
                                                              : ", every part once, one after another"));
  std::size_t width = 4;
  for (const SetPart& part : set.parts()) {
    width = std::max(width, part.file->prefix().size());
  }
  const auto row = [&](const std::vector<std::string>& cells) {
    std::string line = cells[0] + std::string(width - cells[0].size(), ' ');
    for (std::size_t k = 1; k < cells.size(); ++k) {
      constexpr std::size_t kCell = 12;
      line += std::string(kCell > cells[k].size() ? kCell - cells[k].size() : 1, ' ') + cells[k];
    }
    host.log(LogLevel::info, line);
  };
  row({"path", "weight", "normalised", "first", "end", unit_of(*set.parts()[0].file), "tokens", "requested", "built",
       "epochs"});
  for (const SetPart& part : set.parts()) {
    const EpochPlan& plan = part.reader->arrays().plan();
    const double share = part.request.samples_wanted > 0
                             ? static_cast<double>(part.request.samples_wanted) * static_cast<double>(seq_length) /
                                   static_cast<double>(plan.tokens_per_epoch)
                             : 1.0;
    row({part.file->prefix(), decimal(part.options.weight, "%g"), decimal(part.normalised_weight, "%.6f"),
         number(part.request.range.begin), number(part.request.range.end), number(part.request.range.count()),
         number(plan.tokens_per_epoch), number(part.request.samples_wanted), number(plan.samples),
         decimal(share, "%.3f")});
  }
}

}  // namespace espalier::data_indexed
