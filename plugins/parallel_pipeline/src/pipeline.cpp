#include "pipeline.hpp"

#include <string>

#include "cut.hpp"
#include "weave.hpp"

namespace espalier::parallel_pipeline {

Pipeline::Pipeline(const ConfigView& config, HostContext& host)
    : Pipeline(read_options(config, host.facts().grid.pipeline), host.facts().grid.pipeline, host.facts().model) {
  if (stages_ == 1) host.log(LogLevel::info, "one stage: no pipeline, one chunk");
  const Grid& grid = host.facts().grid;
  const bool first = grid.pipeline_rank == 0 && grid.data_rank == 0;
  if (options_.scatter_gather && stages_ > 1 && grid.tensor == 1 && first) {
    host.log(LogLevel::warning,
             "scatter_gather has no effect: it divides a message over a tensor group, and its size is 1");
  }
}

Pipeline::Pipeline(const Options& options, int stages, const ModelShape& model)
    : options_(options), stages_(stages), model_(model) {}

std::vector<int> Pipeline::cut(std::span<const double> layer_cost) const {
  const auto layers = static_cast<int>(layer_cost.size());
  const int parts = stages_ * options_.chunks;
  std::vector<int> first;
  switch (options_.cut) {
    case Cut::layers:
      first = cut_blocks(layers, parts);
      break;
    case Cut::parameters:
      first = cut_weights(layer_parameters(model_), parts);
      break;
    case Cut::slots:
      first = cut_slots(layers, parts);
      break;
    case Cut::cost:
      first = cut_weights(layer_cost, parts);
      break;
    case Cut::list:
      first = cut_list(options_.parts);
      break;
  }
  check_cut(first, layers, stages_);
  return first;
}

Reason Pipeline::accepts(Mode, int micro_batches) const {
  if (micro_batches >= 1) return {};
  return "a step needs at least 1 micro-batch, found " + std::to_string(micro_batches);
}

Orders Pipeline::orders(Mode mode, int micro_batches) const {
  switch (options_.schedule) {
    case Schedule::gpipe:
      return gpipe_orders(mode, stages_, micro_batches);
    case Schedule::one_f_one_b:
      return one_f_one_b_orders(mode, stages_, micro_batches);
    case Schedule::interleaved:
      return interleaved_orders(mode, stages_, options_.chunks, micro_batches);
    case Schedule::zero_bubble:
      break;
  }
  return zero_bubble_orders(mode, stages_, micro_batches);
}

std::vector<Instruction> Pipeline::schedule(Mode mode, int stage, int micro_batches) const {
  return weave(orders(mode, micro_batches), mode, stage, options_.chunks, micro_batches);
}

}  // namespace espalier::parallel_pipeline
