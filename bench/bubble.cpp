// Idle shares of pipelines: the executor runs real instruction lists over ranks whose kernels sleep instead of working,
// 20 ms for a block's forward and for each half of its backward. Sleeping ranks need no cores.
//   mpiexec -n 4 build/bench/bubble      (chrt -r 1 in front where other programs run)
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "support/hashed_batches.hpp"
#include "support/patient_communicator.hpp"
#include "support/session_rig.hpp"

namespace {

using namespace espalier;
using namespace espalier::testing_support;
using Clock = std::chrono::steady_clock;

constexpr auto kSleep = std::chrono::milliseconds(20);
constexpr int kLayersHidden = 16;

/// When work of this rank began and ended, seconds of a clock that all processes of the machine share.
struct Trace {
  double first = 1e300, last = 0, busy = 0;
  void sleep() {
    const double begin = now();
    std::this_thread::sleep_for(kSleep);
    const double end = now();
    first = std::min(first, begin);
    last = std::max(last, end);
    busy += end - begin;
  }
  static double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }
};

/// One call a block in each direction.
class SleepingAttention final : public AttentionKernels {
 public:
  SleepingAttention(AttentionKernels& inner, Trace& trace) : inner_(inner), trace_(trace) {}
  Reason supports(const Attention& shape) const override { return inner_.supports(shape); }
  std::size_t saved_bytes(const Attention& shape) const override { return inner_.saved_bytes(shape); }
  std::size_t workspace(const Attention& shape) const override { return inner_.workspace(shape); }
  void forward(const Attention& args, Stream& stream) override {
    trace_.sleep();
    inner_.forward(args, stream);
  }
  void backward(const AttentionGradient& args, Stream& stream) override {
    trace_.sleep();
    inner_.backward(args, stream);
  }

 private:
  AttentionKernels& inner_;
  Trace& trace_;
};

/// Sleeps in the weight gradient of QKV, the one matrix of 3 · hidden rows of a block's four.
class SleepingMatrix final : public MatrixKernels {
 public:
  SleepingMatrix(MatrixKernels& inner, Trace& trace) : inner_(inner), trace_(trace) {}
  Reason supports(DType working) const override { return inner_.supports(working); }
  std::size_t workspace(const Matmul& shape) const override { return inner_.workspace(shape); }
  void matmul(const Matmul& args, Stream& stream) override {
    if (args.transpose_a && args.dst.rows == 3 * kLayersHidden) trace_.sleep();
    inner_.matmul(args, stream);
  }
  void column_sum(const View& src, const View& dst, bool accumulate, Stream& stream) override {
    inner_.column_sum(src, dst, accumulate, stream);
  }

 private:
  MatrixKernels& inner_;
  Trace& trace_;
};

class SleepingBackend final : public Backend {
 public:
  SleepingBackend(Backend& inner, Trace& trace)
      : inner_(inner),
        attention_(*inner.kernels().attention, trace),
        matrix_(*inner.kernels().matrix, trace),
        kernels_(inner.kernels()) {
    kernels_.attention = &attention_;
    kernels_.matrix = &matrix_;
  }
  std::string description() const override { return "kernels that sleep"; }
  Device& device() override { return inner_.device(); }
  const KernelSet& kernels() override { return kernels_; }
  Reason supports(const Precision& precision) const override { return inner_.supports(precision); }
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) override {
    return inner_.wrap(std::move(communicator));
  }

 private:
  Backend& inner_;
  SleepingAttention attention_;
  SleepingMatrix matrix_;
  KernelSet kernels_;
};

struct Pipeline {
  const char* schedule;
  int stages, chunks, micro_batches;
  double idle() const {
    const double p = stages, m = micro_batches;
    const double work = std::string_view(schedule) == "zero_bubble" ? 3 * m : chunks * m;
    return (p - 1) / (work + p - 1);
  }
};

double over_world(Communicator& world, double value) {
  class HostStream final : public Stream {
  } stream;
  const View view = View::vector(&value, 1, DType::f64);
  world.run({Verb::all_reduce, view, view, Reduce::max, 0, 0}, stream);
  return value;
}

/// Idle share of all stages from the first kernel of a step to its last, the least of six steps: other
/// programs on the machine only add to it.
double measure(Communicator& world, const Pipeline& at) {
  Trace trace;
  std::unique_ptr<SleepingBackend> backend;
  RigOptions options;
  options.pipeline = at.stages;
  options.micro_batches = at.micro_batches;
  options.set = {"model.layers=" + std::to_string(at.stages * at.chunks),
                 "model.hidden=" + std::to_string(kLayersHidden),
                 "model.heads=1",
                 "model.ffn=16",
                 "model.seq_length=4",
                 "parallel.pipeline.schedule=" + std::string(at.schedule),
                 "parallel.pipeline.chunks=" + std::to_string(at.chunks)};
  options.change = [&](app::ExecutorSetup& setup) {
    backend = std::make_unique<SleepingBackend>(*setup.backend, trace);
    setup.backend = backend.get();
  };
  SessionRig rig(world, options);
  Optimizer& optimizer = rig.session().optimizer();
  const app::Walk walk = rig.train_walk();
  rig.bind(std::span(&walk, 1), optimizer, 0.02);
  double least = 1;
  for (std::int64_t step = 0; step < 7; ++step) {
    trace = {};
    HashedBatches batches(rig.facts().model, 1, at.micro_batches, 1, 0, step);
    rig.executor().train_step(walk, batches, {1e-3, 1.0, step + 1}, optimizer);
    const double span = over_world(world, trace.last) + over_world(world, -trace.first);
    // Every stage works as long as any other, but for what sleeps take too long.
    double busy = trace.busy;
    class HostStream final : public Stream {
    } stream;
    const View view = View::vector(&busy, 1, DType::f64);
    world.run({Verb::all_reduce, view, view, Reduce::sum_rank_order, 0, 0}, stream);
    if (step > 0) least = std::min(least, 1 - busy / (span * at.stages));  // the first pays for what is made once
  }
  return least;
}

}  // namespace

int main() {
  const auto world = std::make_unique<PatientCommunicator>(make_world_communicator());
  if (world->size() < 4) {
    std::fprintf(stderr, "mpiexec -n 4 build/bench/bubble\n");
    return 2;
  }
  constexpr Pipeline kPipelines[] = {
      {"gpipe", 2, 1, 4},       {"gpipe", 4, 1, 8},       {"1f1b", 2, 1, 4},        {"1f1b", 4, 1, 4},
      {"1f1b", 4, 1, 8},        {"interleaved", 2, 2, 4}, {"interleaved", 4, 2, 8}, {"zero_bubble", 2, 1, 4},
      {"zero_bubble", 4, 1, 4}, {"zero_bubble", 4, 1, 8},
  };
  if (world->rank() == 0) {
    std::printf(
        "| schedule | stages | chunks | micro-batches | idle share | formula | off |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  }
  bool good = true;
  for (const Pipeline& at : kPipelines) {
    const auto part = world->split(world->rank() < at.stages ? 0 : -1, world->rank(), "world");
    if (part != nullptr) {
      const double idle = measure(*part, at), off = idle / at.idle() - 1;
      good = good && std::fabs(off) <= 0.1;
      if (world->rank() == 0) {
        std::printf("| %s | %d | %d | %d | %.4f | %.4f | %+.1f %% |\n", at.schedule, at.stages, at.chunks,
                    at.micro_batches, idle, at.idle(), 100 * off);
        std::fflush(stdout);
      }
    }
    wait_asleep(*world);
  }
  return good ? 0 : 1;
}
