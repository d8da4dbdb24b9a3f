#pragma once

#include <string_view>

#include "espalier/communicator.hpp"
#include "espalier/config.hpp"
#include "espalier/export.hpp"
#include "espalier/facts.hpp"
#include "espalier/threads.hpp"

namespace espalier {

enum class LogLevel : std::uint8_t { debug, info, warning, error };

/// The groups of a grid. A strategy gets its own; all exist, of size one where the recipe does not split.
enum class Group : std::uint8_t { world, tensor, data, pipeline };

/// Services a plugin gets from its host at creation. Valid for the life of the object made; everything here is used from the
/// training thread only, except log(), which any thread may call.
class ESPALIER_API HostContext {
 public:
  HostContext(const HostContext&) = delete;
  HostContext& operator=(const HostContext&) = delete;
  virtual ~HostContext();

  /// Rank and plugin name are put in front by the host.
  virtual void log(LogLevel level, std::string_view text) = 0;
  virtual const RunFacts& facts() const = 0;
  /// Throws for components that are made before the groups are (optimizer, backend).
  virtual Communicator& communicator(Group group) = 0;
  /// The rank's compute threads.
  virtual ThreadPool& threads() = 0;
  /// The backend of the run; throws before it exists (optimizer, backend).
  virtual Backend& backend() = 0;

 protected:
  HostContext() = default;
};

}  // namespace espalier
