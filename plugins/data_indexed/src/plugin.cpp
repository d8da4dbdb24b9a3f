#include <espalier/plugin.hpp>

#include "dataset.hpp"
#include "token_writer.hpp"
#include "tool.hpp"

namespace {

using espalier::ConfigView;
using espalier::Dataset;
using espalier::HostContext;
using espalier::TokenWriter;

Dataset* create_dataset(const ConfigView& config, HostContext& host) {
  return new espalier::data_indexed::IndexedDataset(config, host);
}
void destroy_dataset(Dataset* dataset) noexcept { delete dataset; }

TokenWriter* create_writer(const ConfigView&, HostContext&) { return new espalier::data_indexed::IndexedTokenWriter; }
void destroy_writer(TokenWriter* writer) noexcept { delete writer; }

constinit const espalier::Factory kFactories[] = {
    espalier::factory<Dataset, create_dataset, destroy_dataset>("indexed", espalier::data_indexed::kDataOptions,
                                                                espalier::data_indexed::kDataOptionCount),
    espalier::factory<TokenWriter, create_writer, destroy_writer>("indexed"),
    espalier::factory_of<espalier::DatasetTool, espalier::data_indexed::IndexedTool>(
        "indexed", espalier::data_indexed::kToolJobs, espalier::data_indexed::kToolJobCount),
};

}  // namespace

ESPALIER_PLUGIN(
    "data_indexed", "0.1.0", "Apache-2.0",
    "Megatron .bin/.idx token datasets, cached sample indices and weighted blends as bigscience builds them",
    kFactories);
