// Kernels that the emulator runs, as work of the fake runtime's queues.
#include <utility>

#include "cuda_emulation/emulator.hpp"
#include "state.hpp"

namespace fake {
namespace {

class QueuedLaunches final : public cuda_emulation::Runtime {
 public:
  void enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work) override {
    fake::enqueue(stream, name, [work = std::move(work)] {
      work();
      return true;
    });
  }
  void wait(cudaStream_t stream) override {
    run_until_idle(stream);
    if (sticky_error() != cudaSuccess) throw cuda_emulation::Error(fault_text());
  }
};

}  // namespace

void queue_emulated_launches() {
  static QueuedLaunches launches;
  cuda_emulation::set_runtime(&launches);
}

}  // namespace fake
