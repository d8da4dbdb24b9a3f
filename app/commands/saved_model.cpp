#include "commands/saved_model.hpp"

#include "checkpoint/store.hpp"
#include "config/open.hpp"
#include "session/threads_per_rank.hpp"
#include "telemetry/log.hpp"
#include "train/phase.hpp"

namespace espalier::app {

SavedModel::SavedModel(Communicator& world, const Request& request) {
  prepare_openmp(threads_per_rank(0, detect_launch().local_size));  // before any plugin brings OpenMP along
  start_log(world.rank(), world.size(), LogLevel::warning);
  RecipeRequest recipe;
  phase(world, [&] {
    const CheckpointStore::Found found = find_checkpoint(request.checkpoint);
    if (!found.note.empty()) log(LogLevel::warning, "checkpoint", found.note);
    reader_ = std::make_unique<CheckpointReader>(found.path);
    recipe.file = (reader_->folder() / "recipe.toml").string();
    recipe.overrides = request.overrides;
    recipe.any_replicas = request.any_world;
    if (request.any_world) {
      // In front of the user's own, which win.
      std::vector<std::string> layout = {"parallel.data.size=0"};
      if (world.size() == 1) {
        const Grid& grid = manifest().grid;
        if (grid.tensor > 1) layout.emplace_back("parallel.tensor.size=1");
        if (grid.pipeline > 1) layout.emplace_back("parallel.pipeline.size=1");
      }
      recipe.overrides.insert(recipe.overrides.begin(), layout.begin(), layout.end());
    }
  });
  OpenRecipe opened = alike([&] { return open_recipe(recipe, world); });
  plugins_ = std::move(opened.plugins);
  session_ = std::make_unique<Session>(world, std::move(opened.recipe), *plugins_, Session::Needs{request.data});
}

SavedModel::~SavedModel() = default;

void SavedModel::load(std::span<const Walk> walks) {
  Session& session = *session_;
  phase(session.world(), [&] {
    if (const std::string& saved = manifest().tokenizer; !saved.empty() && saved != session.tokenizer().fingerprint()) {
      throw IoError(reader_->folder().string() + ": was trained with tokenizer " + saved + ", but the recipe names " +
                    session.tokenizer().fingerprint() + " now");
    }
    reader_->require_model(session.facts().model);
    session.executor().bind(walks, session.optimizer());
    reader_->load(session.parameters().all(), session.executor().parameters(), session.data_parallel().state(),
                  LoadOptimizer::skip, session.backend().device(), session.stream());
  });
  session.data_parallel().refresh(session.stream());
  session.backend().device().wait(session.stream());
}

}  // namespace espalier::app
