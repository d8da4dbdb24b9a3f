#include "commands/saved_model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/store.hpp"
#include "config/open.hpp"
#include "config/source.hpp"
#include "interop/checkpoint_writer.hpp"
#include "interop/converted_recipe.hpp"
#include "interop/tokenizer_files.hpp"
#include "session/threads_per_rank.hpp"
#include "telemetry/log.hpp"
#include "train/phase.hpp"

namespace espalier::app {

namespace {

/// Whether a saved recipe has `key` of [parallel.tensor] on. Anything wrong with it is said when it is opened.
bool is_on(const std::string& file, std::string_view key) {
  std::vector<ConfigProblem> ignored;
  const ConfigTable root = read_sources(file, "", {}, "", ignored);
  const ConfigTable* table = &root;
  for (const std::string_view name : {"parallel", "tensor"}) {
    const ConfigValue* value = table->find(name);
    const auto* nested = value == nullptr ? nullptr : std::get_if<std::shared_ptr<ConfigTable>>(&value->data);
    if (nested == nullptr) return false;
    table = nested->get();
  }
  const ConfigValue* value = table->find(key);
  return value != nullptr && std::holds_alternative<bool>(value->data) && std::get<bool>(value->data);
}

}  // namespace

SavedModel::SavedModel(Communicator& world, const Request& request) {
  prepare_openmp(threads_per_rank(0, detect_launch().local_size));  // before any plugin brings OpenMP along
  start_log(world.rank(), world.size(), LogLevel::warning);
  RecipeRequest recipe;
  phase(world, [&] { recipe = open(request, world); });
  OpenRecipe opened = alike([&] { return open_recipe(recipe, world); });
  plugins_ = std::move(opened.plugins);
  session_ = std::make_unique<Session>(world, std::move(opened.recipe), *plugins_, Session::Needs{request.data});
}

RecipeRequest SavedModel::open(const Request& request, const Communicator& group) {
  const int world = group.size();
  RecipeRequest recipe;
  Grid grid;
  if (is_huggingface_folder(request.checkpoint)) {
    recipe = recipe_of_folder(request);
    if (world > 1) recipe.overrides.emplace_back("parallel.data.plugin=parallel_zero");
  } else {
    const CheckpointStore::Found found = find_checkpoint(request.checkpoint);
    if (!found.note.empty()) log(LogLevel::warning, "checkpoint", found.note);
    reader_ = std::make_unique<CheckpointReader>(found.path);
    recipe.file = (reader_->folder() / "recipe.toml").string();
    recipe.saved = true;
    grid = reader_->manifest().grid;
  }
  recipe.any_replicas = request.any_world;
  if (request.any_world) {
    recipe.overrides.emplace_back("parallel.data.size=0");
    if (world == 1 && grid.tensor > 1) recipe.overrides.emplace_back("parallel.tensor.size=1");
    if (world == 1 && grid.pipeline > 1) recipe.overrides.emplace_back("parallel.pipeline.size=1");
  }
  constexpr std::string_view kTokens = "sequence_parallel";
  if (request.single_tokens && recipe.text.empty() && is_on(recipe.file, kTokens)) {
    recipe.overrides.push_back("parallel.tensor." + std::string(kTokens) + "=false");
    if (world > 1 && group.rank() == 0) {
      log(LogLevel::warning, "parallel.tensor",
          "sequence_parallel of the recipe is switched off: it cuts tokens, and this goes token by token");
    }
  }
  // The user's own come last, and win.
  recipe.overrides.insert(recipe.overrides.end(), request.overrides.begin(), request.overrides.end());
  return recipe;
}

RecipeRequest SavedModel::recipe_of_folder(const Request& request) {
  constexpr std::int64_t kSeqLength = 2048;  // BLOOM's, where config.json does not say it
  folder_ = std::make_unique<HuggingFaceFolder>(request.checkpoint);
  const std::filesystem::path folder = std::filesystem::absolute(folder_->folder()).lexically_normal();
  const std::string tokenizer = tokenizer_section(tokenizer_files_in(folder), folder);
  const bool named =
      std::ranges::any_of(request.overrides, [](const auto& one) { return one.starts_with("tokenizer."); });
  if (tokenizer.empty() && !named) {
    throw IoError(folder.string() +
                  ": has no tokenizer.json and no SentencePiece model; name one with "
                  "--set tokenizer.plugin=huggingface --set tokenizer.file=FILE");
  }
  ModelShape shape = folder_->shape();
  if (shape.seq_length == 0) shape.seq_length = kSeqLength;
  RecipeRequest recipe;
  recipe.file = (folder / "(the recipe made for it)").string();
  recipe.text = converted_recipe(shape, folder.string(), tokenizer);
  return recipe;
}

std::string SavedModel::origin() const {
  return folder_ ? folder_->folder().string() : fmt::format("checkpoint of step {}", reader_->manifest().train.step);
}

SavedModel::~SavedModel() = default;

bool SavedModel::without_data() const {
  const bool foreign = folder_ != nullptr || reader_->manifest().provider.starts_with(kConvertedFrom);
  return foreign && session_->recipe().data.plugin == kBuiltInDataset;
}

void SavedModel::load(std::span<const Walk> walks) {
  Session& session = *session_;
  phase(session.world(), [&] {
    if (folder_) {
      folder_->require_model(session.facts().model, session.parameters());
      session.executor().bind(walks, session.optimizer());
      return;
    }
    const std::string& saved = reader_->manifest().tokenizer;
    if (!saved.empty() && saved != session.tokenizer().fingerprint()) {
      throw IoError(reader_->folder().string() + ": was trained with tokenizer " + saved + ", but the recipe names " +
                    session.tokenizer().fingerprint() + " now");
    }
    reader_->require_model(session.facts().model);
    session.executor().bind(walks, session.optimizer());
    reader_->load(session.parameters().all(), session.executor().parameters(), session.data_parallel().state(),
                  LoadOptimizer::skip, session.backend().device(), session.stream());
  });
  if (folder_) {
    load_weights(*folder_, session.executor().parameters(), session.data_parallel(), session.backend());
    return;
  }
  session.data_parallel().refresh(session.stream());
  session.backend().device().wait(session.stream());
}

}  // namespace espalier::app
