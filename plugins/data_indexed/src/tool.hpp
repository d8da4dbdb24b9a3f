#pragma once
#include <cstddef>
#include <espalier/config.hpp>
#include <espalier/dataset.hpp>
#include <espalier/host.hpp>
#include <string>

namespace espalier::data_indexed {

/// `trainer data inspect|merge|verify|indices`: work on pairs and their cached arrays outside a run.
class IndexedTool : public DatasetTool {
 public:
  IndexedTool(const ConfigView& config, HostContext& host) : config_(config), host_(host) {}

  /// Does the one job that the options name.
  std::string run() override;

 private:
  std::string inspect(const ConfigView& options) const;
  std::string merge(const ConfigView& options) const;
  std::string verify(const ConfigView& options) const;
  std::string indices(const ConfigView& options) const;

  ConfigView config_;
  HostContext& host_;
};

inline constexpr std::size_t kToolJobCount = 4;
extern const OptionSpec kToolJobs[kToolJobCount];

}  // namespace espalier::data_indexed
