#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "commands/commands.hpp"
#include "checkpoint/store.hpp"
#include "config/open.hpp"
#include "session/session.hpp"
#include "session/threads_per_rank.hpp"
#include "telemetry/log.hpp"
#include "train/phase.hpp"
#include "train/run_lock.hpp"
#include "train/stop.hpp"
#include "train/trainer.hpp"

namespace espalier::app {
namespace {

constexpr ArgSpec kArgs[] = {kRecipeArg, kSetArg};
constexpr const char* kStopping = "\nstopping: after this step the state is saved; Ctrl-C once more ends at once, without saving\n";

using Locks = std::vector<std::unique_ptr<RunLock>>;

/// @param save  folder of the checkpoints, "" for none: another run may name it, too.
Locks make_run_folder(Communicator& world, const std::string& run_dir, const std::string& save) {
  Locks locks;
  phase(world, [&] {
    if (world.rank() != 0) return;
    std::error_code error;
    std::filesystem::create_directories(run_dir, error);
    if (error) throw IoError(run_dir, "cannot make the run folder (run.dir)", error.value());
    locks.push_back(std::make_unique<RunLock>(run_dir, "run.dir"));
    if (!save.empty()) std::filesystem::create_directories(save, error);
    if (error) throw IoError(save, "cannot make the folder of checkpoints (checkpoint.save)", error.value());
    if (!save.empty() && !std::filesystem::equivalent(save, run_dir))
      locks.push_back(std::make_unique<RunLock>(save, "checkpoint.save"));
    log_to_file(std::filesystem::path(run_dir) / "trainer.log");
  });
  return locks;
}

int train(Communicator& world, const Args& args) {
  prepare_openmp(threads_per_rank(0, detect_launch().local_size));  // before any plugin brings OpenMP along
  OpenRecipe opened = alike([&] { return open_recipe(recipe_request(args), world); });
  start_log(world.rank(), world.size(), parse_log_level(opened.recipe.log.level));
  Locks locks;
  const std::string run_dir = opened.recipe.run_dir;
  const std::string save = opened.recipe.checkpoint.save_interval < 0 ? "" : opened.recipe.checkpoint.save;
  Session::Needs needs;
  // A machine that lacks the device is left as it was.
  needs.device_found = [&] { locks = make_run_folder(world, run_dir, save); };
  Session session(world, std::move(opened.recipe), *opened.plugins, needs);
  Trainer trainer(session);
  // Only now: a start that is refused leaves the recipe of the run as it was.
  phase(world, [&] {
    const Recipe& recipe = session.recipe();
    if (world.rank() == 0) write_synced(std::filesystem::path(recipe.run_dir) / "recipe.toml", recipe.effective);
  });
  return static_cast<int>(trainer.run());
}

int run(const Args& args) {
  const StopSignals signals(detect_launch().local_rank == 0 ? kStopping : nullptr);
  const std::unique_ptr<Communicator> world = make_world_communicator();
  return run_on_world(*world, [&] { return train(*world, args); });
}

}  // namespace

const Command kTrain{"train",
                     "train a model from a recipe, or go on where its last run stopped",
                     "  trainer train configs/quickstart.toml\n"
                     "  mpiexec -n 2 trainer train configs/quickstart.toml --set optimizer.plugin=optim_fp16 --set run.dir=runs/fp16\n"
                     "Ctrl-C (or SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU) saves the state after the current step and ends with exit code\n"
                     "75; the same command goes on from there. Everything a run writes is in run.dir: checkpoints, recipe.toml, train.log (steps),\n"
                     "metrics.jsonl (the same, one JSON object a line), trainer.log (what plugins and the program say).",
                     kArgs,
                     run};

}  // namespace espalier::app
