// How far the layouts of a BF16 run are apart on 65,536 held-out tokens, before the first step and after fifty; beside
// it how far the two kernel providers are apart on one rank, and BF16 from FP32.
//   mpiexec -n 8 build/bench/spread [LAYERS HIDDEN SEED]
#include "support/spread.hpp"

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  using namespace espalier;
  using namespace espalier::testing_support;
  const auto world = make_world_communicator();
  if (world->size() < 8) {
    std::fprintf(stderr, "mpiexec -n 8 build/bench/spread [LAYERS HIDDEN SEED]\n");
    return 2;
  }
  SpreadModel model;
  if (argc > 1) model.layers = std::atoi(argv[1]);
  if (argc > 2) model.hidden = std::atoi(argv[2]);
  if (argc > 3) model.seed = std::atoi(argv[3]);
  const SpreadResult result = measure_spread(*world, spread_layouts(), model);
  if (world->rank() != 0) return 0;
  const auto print = [](const char* name, double before, double after) {
    std::printf("| %s | %.6f | %.6f |\n", name, before, after);
  };
  std::printf("| %d layers, hidden %d, seed %d | before | after %d steps |\n| --- | ---: | ---: |\n", model.layers,
              model.hidden, model.seed, model.steps);
  for (const HeldOutLoss& loss : result.layouts) print(loss.name.c_str(), loss.before, loss.after);
  for (const HeldOutLoss& loss : result.other_provider) print(loss.name.c_str(), loss.before, loss.after);
  print(result.fp32.name.c_str(), result.fp32.before, result.fp32.after);
  print("apart: layouts, sums of FP32 parts", result.layouts_apart.before, result.layouts_apart.after);
  print("apart: one rank and tensor groups that send BF16 parts", result.rounded_parts.before,
        result.rounded_parts.after);
  print("apart: the two providers, on the layout where it is most", result.providers.before, result.providers.after);
  print("apart: BF16 and FP32", result.precisions.before, result.precisions.after);
  return 0;
}
