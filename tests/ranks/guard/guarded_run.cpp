#include "ranks/guard/guarded_run.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "config/open.hpp"
#include "train/phase.hpp"
#include "train/trainer.hpp"

namespace espalier::testing_support {
namespace {

namespace fs = std::filesystem;

/// Hears of the end of each step before the trainer compares anything.
class Saboteur final : public Monitor {
 public:
  Saboteur(std::int64_t step, std::function<void()> damage, std::vector<std::string>& events)
      : step_(step), damage_(std::move(damage)), events_(events) {}
  void metrics(const Progress& progress, std::span<const Metric>) override {
    if (progress.step == step_) damage_();
  }
  void event(const Progress&, std::string_view kind, std::string_view text) override {
    events_.push_back(std::string(kind) + ": " + std::string(text));
  }
  void flush() override {}
  void resume(const Progress&) override {}

 private:
  std::int64_t step_;
  std::function<void()> damage_;
  std::vector<std::string>& events_;
};

std::string from(const char* variable, const std::string& otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : text;
}

std::vector<std::byte> bytes_of(app::Session& session, const View& view) {
  std::vector<std::byte> bytes(view.bytes());
  Device& device = session.backend().device();
  device.copy(view, View::matrix(bytes.data(), view.rows, view.cols, view.dtype), session.stream());
  device.wait(session.stream());
  return bytes;
}

}  // namespace

std::string GuardedEnd::events_of(const std::string& kind) const {
  std::string text;
  for (const std::string& event : events) {
    if (event.starts_with(kind + ": ")) text += event + "\n";
  }
  return text;
}

// One folder for all ranks, and none that another job of this test has.
GuardedRun::GuardedRun(Communicator& world, const std::string& name)
    : world_(world),
      folder_(testing::TempDir() + "guard_" + gather_strings(world, std::to_string(::getpid())).front() + "_" + name) {
  remove_folder();
  tables_["run"]["dir"] = "\"" + folder_ + "\"";
  const std::string first = from("ESPALIER_TEST_PLUGINS", ESPALIER_PLUGIN_DIR);
  tables_["plugins"]["search_path"] = "[\"" + first + "\", \"" ESPALIER_PLUGIN_DIR "\"]";
  tables_["model"] = {{"layers", "2"}, {"hidden", "32"}, {"heads", "4"}, {"vocab_size", "259"}, {"seq_length", "24"}};
  tables_["train"] = {{"train_iters", "8"}, {"global_batch_size", "8"},         {"micro_batch_size", "2"},
                      {"lr", "1e-2"},       {"lr_decay_style", "\"constant\""}, {"threads", "1"}};
  tables_["optimizer"]["plugin"] = "\"optim_bf16\"";
  tables_["backend"]["plugin"] = "\"" + from("ESPALIER_TEST_PROVIDER", "kernels_fused") + "\"";
  tables_["data"]["plugin"] = "\"synthetic\"";
  tables_["parallel.data"]["plugin"] = "\"parallel_zero\"";
  tables_["parallel.data"]["overlap"] = "false";  // damage done between steps must not be gathered away
  tables_["guard"]["interval"] = "1";
}

GuardedRun::~GuardedRun() { remove_folder(); }

void GuardedRun::remove_folder() {
  std::error_code ignored;
  if (world_.rank() == 0) fs::remove_all(folder_, ignored);
  fs::remove(recipe(), ignored);
}

GuardedRun& GuardedRun::set(const std::string& key, const std::string& value) {
  const auto dot = key.rfind('.');
  tables_[key.substr(0, dot)][key.substr(dot + 1)] = value;
  return *this;
}

GuardedRun& GuardedRun::after_step(std::int64_t step, std::function<void(app::Session&)> damage) {
  step_ = step;
  damage_ = std::move(damage);
  return *this;
}

GuardedEnd GuardedRun::run() {
  {
    std::ofstream out(recipe());
    for (const auto& [table, values] : tables_) {
      out << "[" << table << "]\n";
      for (const auto& [key, value] : values) out << key << " = " << value << "\n";
    }
  }
  app::RecipeRequest request;
  request.file = recipe();
  app::OpenRecipe opened = app::open_recipe(request, world_);
  app::Session session(world_, std::move(opened.recipe), *opened.plugins, {});
  GuardedEnd end;
  try {
    app::Trainer trainer(session);
    trainer.add_monitor(std::make_unique<Saboteur>(
        step_, [&] { damage_(session); }, end.events));
    end.code = trainer.run();
  } catch (const app::AgreedError& error) {
    end.code = error.exit_code();
    end.error = error.what();
  }
  end.weight_version = session.data_parallel().weight_version();
  for (const StatePiece& piece : session.data_parallel().state()) {
    const std::string name =
        piece.parameter < 0
            ? "model"
            : std::string(session.executor().parameters()[static_cast<std::size_t>(piece.parameter)].parameter.name);
    const std::vector<std::byte> bytes = bytes_of(session, piece.data);
    end.state[name + " " + std::string(piece.state) + " " + std::to_string(piece.begin)] =
        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return end;
}

void flip(app::Session& session, const std::string& parameter, const std::string& state) {
  const auto parameters = session.executor().parameters();
  // The mantissa's upper bit: a difference in the last one may be gone again after the next rounding.
  const auto flip_first = [&](const View& view) {
    std::vector<std::byte> bytes = bytes_of(session, view);
    bytes[size_of(view.dtype) - 2] ^= std::byte{0x40};
    Device& device = session.backend().device();
    device.copy(View::matrix(bytes.data(), view.rows, view.cols, view.dtype), view, session.stream());
    device.wait(session.stream());
  };
  const auto name_of = [&](int p) { return parameters[static_cast<std::size_t>(p)].parameter.name; };
  if (state == "working weights") {
    for (int p = 0; p < static_cast<int>(parameters.size()); ++p) {
      if (name_of(p) == parameter) return flip_first(session.data_parallel().weight(p));
    }
  }
  for (const StatePiece& piece : session.data_parallel().state()) {
    if (piece.parameter >= 0 && name_of(piece.parameter) == parameter && piece.state == state)
      return flip_first(piece.data);
  }
  FAIL() << "this rank has no " << parameter << " " << state;
}

}  // namespace espalier::testing_support
