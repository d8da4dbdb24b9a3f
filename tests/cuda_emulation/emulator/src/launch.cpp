#include <cstdlib>
#include <string>
#include <string_view>

#include "cuda_emulation/emulator.hpp"
#include "engine.hpp"

namespace cuda_emulation {
namespace {

Runtime* runtime = nullptr;

constexpr unsigned kMostThreads = 1024, kMostThreadsZ = 64, kMostBlocksYz = 65535, kMostBlocksX = 0x7fffffff;
constexpr std::size_t kMostShared = 163 << 10;  // sm_80; sm_90 has 227 KiB

Options from_environment() {
  Options result;
  const char* variable = std::getenv("ESPALIER_CUDA_EMULATION");
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(item.size() < rest.size() ? item.size() + 1 : item.size());
    const std::string_view value = item.substr(item.find('=') + 1);
    if (item == "order=forward") {
      result.order = Order::forward;
    } else if (item == "order=reverse") {
      result.order = Order::reverse;
    } else if (item == "order=random") {
      result.order = Order::random;
    } else if (item.starts_with("seed=") && !value.empty() && value.find_first_not_of("0123456789") == value.npos) {
      result.seed = std::stoull(std::string(value));
    } else if (item == "races=on" || item == "races=off") {
      result.races = value == "on";
    } else {
      throw Error("ESPALIER_CUDA_EMULATION: unknown \"" + std::string(item) +
                  "\" (known: order=forward|reverse|random, seed=<number>, races=on|off)");
    }
  }
  return result;
}

void refuse(const char* name, const std::string& what) { throw Error(std::string("kernel ") + name + ": " + what); }

void check_limits(const char* name, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMostThreads || block.z > kMostThreadsZ) {
    refuse(name, "a block of " + std::to_string(block.x) + " x " + std::to_string(block.y) + " x " +
                     std::to_string(block.z) + " threads; the device takes 1 to 1024 in all and 64 in z");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > kMostBlocksX || grid.y > kMostBlocksYz ||
      grid.z > kMostBlocksYz) {
    refuse(name, "a grid of " + std::to_string(grid.x) + " x " + std::to_string(grid.y) + " x " +
                     std::to_string(grid.z) + " blocks; the device takes 1 to 2^31 - 1 in x and 1 to 65535 in y and z");
  }
  if (dynamic_shared_bytes > kMostShared) {
    refuse(name, "dynamic shared memory of " + std::to_string(dynamic_shared_bytes) + " bytes; a block may have " +
                     std::to_string(kMostShared));
  }
}

}  // namespace

Options& options() {
  static Options value = from_environment();
  return value;
}

void set_runtime(Runtime* replacement) { runtime = replacement; }

void launch(const char* name, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, cudaStream_t stream,
            std::function<void()> thread) {
  check_limits(name, grid, block, dynamic_shared_bytes);
  if (runtime == nullptr) {
    Engine::instance().run(name, grid, block, dynamic_shared_bytes, thread);
    return;
  }
  runtime->enqueue(stream, name, [=, name = std::string(name), thread = std::move(thread)] {
    Engine::instance().run(name.c_str(), grid, block, dynamic_shared_bytes, thread);
  });
}

void wait(cudaStream_t stream) {
  if (runtime != nullptr) runtime->wait(stream);
}

}  // namespace cuda_emulation
