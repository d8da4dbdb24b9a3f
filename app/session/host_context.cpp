#include "session/host_context.hpp"

#include "telemetry/log.hpp"

namespace espalier::app {

void ComponentHost::log(LogLevel level, std::string_view text) { app::log(level, name_, text); }

Communicator& ComponentHost::communicator(Group group) {
  if (group == Group::world && host_world_ != nullptr) return *host_world_;
  Communicator* const found = services_.groups[static_cast<std::size_t>(group)];
  if (found == nullptr) throw PluginError(name_ + ": asked for a communicator before the groups were made");
  return *found;
}

Backend& ComponentHost::backend() {
  if (services_.backend == nullptr) throw PluginError(name_ + ": asked for the backend before it was made");
  return *services_.backend;
}

}  // namespace espalier::app
