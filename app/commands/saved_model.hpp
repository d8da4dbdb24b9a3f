#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/reader.hpp"
#include "config/load.hpp"
#include "interop/huggingface.hpp"
#include "session/session.hpp"
#include "train/batch.hpp"

namespace espalier::app {

/// A model as a checkpoint or a Hugging Face folder holds it, ready for forward passes: session and weights. The recipe
/// is the one saved with a checkpoint, or what `convert` would save.
class SavedModel {
 public:
  struct Request {
    std::string checkpoint;
    std::vector<std::string> overrides;  ///< --set
    bool data = false;                   ///< open the recipe's dataset
    /// Lay the model out for this world: one rank holds all of it, whatever split the recipe says; several split it as
    /// the recipe says, with as many replicas as the world leaves.
    bool any_world = false;
    /// Work goes token by token: sequence parallelism, which cuts tokens and no weights, is switched off where the saved
    /// recipe has it.
    bool single_tokens = false;
  };
  /// Collective over the world; every failure is thrown alike on all ranks.
  SavedModel(Communicator& world, const Request& request);
  ~SavedModel();

  /// Reserves memory for these passes and reads the weights. Collective.
  void load(std::span<const Walk> walks);

  Session& session() { return *session_; }
  /// What it is, for people: "checkpoint of step 100", or the folder.
  std::string origin() const;
  /// Whether the data of its recipe mean nothing: the recipe was made for weights from elsewhere.
  bool without_data() const;

 private:
  RecipeRequest open(const Request& request, const Communicator& group);
  RecipeRequest recipe_of_folder(const Request& request);

  std::unique_ptr<CheckpointReader> reader_;  // one of the two
  std::unique_ptr<HuggingFaceFolder> folder_;
  std::unique_ptr<PluginHost> plugins_;
  std::unique_ptr<Session> session_;
};

}  // namespace espalier::app
