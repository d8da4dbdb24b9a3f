// Speed of a recipe's backend on its device, at the shapes of the recipe's model.
//   device_bench RECIPE [--set KEY=VALUE]... [--only=memory|products|step|model] [--tokens=16384]
//   [--copy-bytes=536870912] [--peak=8192] [--seconds=0.1] [--copy-rate=GB/S] [--peak-rate=TFLOP/S] [--json=FILE]
// memory    kernels that move memory, in bytes a second and as a share of a measured copy
// products  GEMMs and attention in FLOP/s and as a share of a measured large GEMM
// step      a training step: how long, and where the time goes, modelled and measured
// model     the modelled half of it, which needs no device; rates are those of an H200 unless given
// Without --only: memory and products.
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <string>

#include "config/open.hpp"
#include "espalier/communicator.hpp"
#include "kernel_bench.hpp"
#include "session/session.hpp"

namespace {

using namespace espalier;

struct Settings {
  app::RecipeRequest recipe;
  bench::KernelBenchSettings kernels;
  bench::Rates rates{4.0e12, 7.9e14};  ///< of --only=model: a copy and a large BF16 product on an H200
  std::string only;
  std::string json;
};

Settings read(int argc, char** argv) {
  Settings settings;
  const auto value_of = [](const std::string& argument, std::string_view name, std::string& value) {
    if (argument.rfind(std::string(name) + "=", 0) != 0) return false;
    value = argument.substr(name.size() + 1);
    return true;
  };
  std::string value;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--set" && i + 1 < argc) {
      settings.recipe.overrides.emplace_back(argv[++i]);
    } else if (value_of(argument, "--tokens", value)) {
      settings.kernels.tokens = std::stoll(value);
    } else if (value_of(argument, "--copy-bytes", value)) {
      settings.kernels.copy_bytes = std::stoll(value);
    } else if (value_of(argument, "--peak", value)) {
      settings.kernels.peak = std::stoll(value);
    } else if (value_of(argument, "--seconds", value)) {
      settings.kernels.seconds = std::stod(value);
    } else if (value_of(argument, "--copy-rate", value)) {
      settings.rates.copy = std::stod(value) * 1e9;
    } else if (value_of(argument, "--peak-rate", value)) {
      settings.rates.peak = std::stod(value) * 1e12;
    } else if (value_of(argument, "--only", value)) {
      settings.only = value;
    } else if (value_of(argument, "--json", value)) {
      settings.json = value;
    } else if (settings.recipe.file.empty() && argument.rfind("--", 0) != 0) {
      settings.recipe.file = argument;
    } else {
      throw ConfigError("device_bench: unknown argument " + argument);
    }
  }
  const std::string& only = settings.only;
  if (!only.empty() && only != "memory" && only != "products" && only != "step" && only != "model") {
    throw ConfigError("device_bench: --only=" + only + " (memory, products, step, model)");
  }
  if (settings.recipe.file.empty()) throw ConfigError("device_bench: name a recipe");
  return settings;
}

nlohmann::ordered_json run(app::Session& session, bench::StepBench& step, const Settings& settings) {
  Backend& backend = session.backend();
  nlohmann::ordered_json result{{"device", backend.device().name()},
                                {"backend", backend.description()},
                                {"working", name_of(session.facts().precision.working)}};
  if (settings.only == "model") {
    result["step"] = step.run(session, settings.rates, true);
    return result;
  }
  bench::KernelBench kernels(backend, settings.kernels, session.facts());
  const bench::Rates rates = kernels.rates();
  if (settings.only.empty() || settings.only == "memory") kernels.memory();
  if (settings.only.empty() || settings.only == "products") kernels.products();
  result["tokens"] = settings.kernels.tokens;
  result["copy_gb_per_s"] = rates.copy * 1e-9;
  result["peak_tflop_per_s"] = rates.peak * 1e-12;
  result["kernels"] = kernels.rows();
  if (settings.only == "step") result["step"] = step.run(session, rates, false);
  return result;
}

}  // namespace

int main(int argc, char** argv) try {
  Settings settings = read(argc, argv);
  settings.recipe.any_replicas = true;
  const auto world = make_world_communicator();
  app::OpenRecipe open = app::open_recipe(settings.recipe, *world);
  bench::StepBench step;
  app::Session session(*world, std::move(open.recipe), *open.plugins, {false, false, 0});
  fmt::print("{}\n", session.backend().description());
  const nlohmann::ordered_json result = run(session, step, settings);
  if (!settings.json.empty()) {
    std::ofstream file(settings.json);
    file << result.dump(1) << "\n";
    if (!file.flush()) throw IoError("device_bench: cannot write " + settings.json);
  }
  return 0;
} catch (const espalier::Error& error) {
  std::cerr << error.what() << "\n";
  return static_cast<int>(error.exit_code());
}
