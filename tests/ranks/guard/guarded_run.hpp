// A run of the real trainer inside the test, on the ranks of its world, in which one rank's memory can be damaged
// between two steps.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "espalier/error.hpp"
#include "session/session.hpp"

namespace espalier::testing_support {

/// What came of a run, on this rank.
struct GuardedEnd {
  ExitCode code = ExitCode::ok;
  std::string error;                ///< of an error that all ranks threw
  std::vector<std::string> events;  ///< "guard: …" lines, and all others
  /// Bytes of every piece of state at the end, by "parameter state begin".
  std::map<std::string, std::string> state;
  std::uint64_t weight_version = 0;  ///< of the data strategy

  std::string events_of(const std::string& kind) const;
};

class GuardedRun {
 public:
  /// BLOOM of 2 layers and hidden 32 on synthetic text, kernels_fused and optim_bf16, guard.interval = 1, in a folder
  /// of its own that is emptied. ESPALIER_TEST_PROVIDER names another backend, ESPALIER_TEST_PLUGINS where it lies.
  GuardedRun(Communicator& world, const std::string& name);
  ~GuardedRun();
  GuardedRun(GuardedRun&&) = default;

  /// As TrainerJob::set; on all ranks or on one.
  GuardedRun& set(const std::string& key, const std::string& value);
  /// Called on this rank when the step is over, before anything is compared.
  GuardedRun& after_step(std::int64_t step, std::function<void(app::Session&)> damage);
  /// Collective.
  GuardedEnd run();

 private:
  void remove_folder();
  std::string recipe() const { return folder_ + "_" + std::to_string(world_.rank()) + ".toml"; }

  Communicator& world_;
  std::string folder_;
  std::map<std::string, std::map<std::string, std::string>> tables_;
  std::int64_t step_ = -1;
  std::function<void(app::Session&)> damage_;
};

/// Flips a bit of the first element of a piece of state, or of "working weights".
void flip(app::Session& session, const std::string& parameter, const std::string& state);

}  // namespace espalier::testing_support
