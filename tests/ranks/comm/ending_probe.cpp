// Ways to end a job, for ending_test.sh: ending_probe MODE.
#include <cstdio>
#include <string>

#include "espalier/communicator.hpp"

namespace {

using namespace espalier;

class HostStream final : public Stream {};

std::unique_ptr<Communicator> last_to_go;  // a static: destroyed after main

int run(const std::string& mode) {
  auto world = make_world_communicator();
  HostStream stream;
  float value = 0;
  const View view = View::vector(&value, 1, DType::f32);
  const bool chosen = world->rank() == world->size() - 1;
  if (mode == "abort") {
    if (chosen) world->abort(42, "the disk is full");
    world->run({}, stream);  // waits for a rank that never comes
  } else if (mode == "open") {
    auto group = world->split(0, 0, "data");
    if (chosen) group->start_receive(view, 0, 1, stream);
    if (chosen) group.reset();
    world->run({}, stream);
  } else if (mode == "alone") {
    if (chosen) throw IoError("data.bin: cannot be read");
    world->run({}, stream);
  } else if (mode == "together") {
    agree(*world, static_cast<int>(ExitCode::io), chosen ? "data.bin: cannot be read" : "");
  } else if (mode == "late") {
    last_to_go = world->split(0, 0, "kept");
    world.reset();
    last_to_go->finish(last_to_go->start_all_reduce(view, Reduce::sum_rank_order, stream), stream);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "");
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
