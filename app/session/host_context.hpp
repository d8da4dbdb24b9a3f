#pragma once

#include <memory>
#include <string>

#include "espalier/host.hpp"
#include "espalier/tokenizer.hpp"

namespace espalier::app {

/// What every component of a run is given. The run fills it in as its parts come into being; see "Precision first" in
/// docs/architecture.md for the order.
struct Services {
  RunFacts facts;
  ThreadPool* threads = nullptr;
  Backend* backend = nullptr;
  const Tokenizer* tokenizer = nullptr;  ///< for what is built in: plugins have no way to ask
  Communicator* groups[4] = {};  ///< by Group
};

/// One component's view of the services; its log lines carry its name.
class ComponentHost final : public HostContext {
 public:
  /// @param host_world  for components that have data in host memory only: what they get as the world. Null: its group for the device.
  ComponentHost(std::string name, Services& services, Communicator* host_world = nullptr)
      : name_(std::move(name)), services_(services), host_world_(host_world) {}

  void log(LogLevel level, std::string_view text) override;
  const RunFacts& facts() const override { return services_.facts; }
  /// @throws Error when the component asks for a group that is made after it.
  Communicator& communicator(Group group) override;
  ThreadPool& threads() override { return *services_.threads; }
  Backend& backend() override;
  /// Null where the run has no text.
  const Tokenizer* tokenizer() const { return services_.tokenizer; }

 private:
  std::string name_;
  Services& services_;
  Communicator* host_world_;
};

}  // namespace espalier::app
