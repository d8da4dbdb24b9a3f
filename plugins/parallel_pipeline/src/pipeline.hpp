#pragma once

#include "espalier/host.hpp"
#include "espalier/parallel/pipeline.hpp"
#include "options.hpp"
#include "orders.hpp"

namespace espalier::parallel_pipeline {

class Pipeline final : public PipelineParallel {
 public:
  Pipeline(const ConfigView& config, HostContext& host);
  Pipeline(const Options& options, int stages, const ModelShape& model);

  int stages() const override { return stages_; }
  int chunks() const override { return options_.chunks; }
  std::vector<int> cut(std::span<const double> layer_cost) const override;
  Reason accepts(Mode mode, int micro_batches) const override;
  std::vector<Instruction> schedule(Mode mode, int stage, int micro_batches) const override;
  bool scatters_messages() const override { return options_.scatter_gather; }

 private:
  Orders orders(Mode mode, int micro_batches) const;

  Options options_;
  int stages_;
  ModelShape model_;
};

}  // namespace espalier::parallel_pipeline
