#include "comm/mpi_runtime.hpp"

#include <sched.h>
#include <signal.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>

#include "comm/mpi.hpp"
#include "espalier/polling.hpp"
#include "espalier/threads.hpp"

namespace espalier {
namespace {
void (*poll_hook)(void*) = nullptr;
void* poll_hook_data = nullptr;
}  // namespace

void set_poll_hook(void (*work)(void*), void* data) {
  poll_hook = work;
  poll_hook_data = data;
}

}  // namespace espalier

namespace espalier::comm {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0, rank = 0;
  MPI_Error_string(code, text, &length);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::string_view expression = call;
  throw CommError("rank " + std::to_string(rank) + ": " + std::string(expression.substr(0, expression.find('('))) +
                  ": " + text);
}

namespace {
MpiRuntime* polled = nullptr;
}  // namespace

std::shared_ptr<MpiRuntime> MpiRuntime::acquire() {
  static std::weak_ptr<MpiRuntime> current;
  std::shared_ptr<MpiRuntime> runtime = current.lock();
  if (runtime == nullptr) {
    runtime.reset(new MpiRuntime);
    current = runtime;
  }
  return runtime;
}

MpiRuntime::MpiRuntime() {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  if (finalised != 0) throw CommError("MPI was finalised: it can be used once in a process");
  if (initialised == 0) {
    // One thread communicates; a watchdog may abort from another.
    int provided = 0;
    // MPICH takes SIGUSR1 for news of a dead process and asks its launcher: without one it waits for ever in MPI_Finalize.
    struct sigaction own {};
    ::sigaction(SIGUSR1, nullptr, &own);
    ESPALIER_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
    ::sigaction(SIGUSR1, &own, nullptr);
    finalises_ = true;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (const char* text = std::getenv("ESPALIER_COMM_PIECE_ELEMENTS"); text != nullptr) {
    std::int64_t limit = 0;
    std::from_chars(text, text + std::string_view(text).size(), limit);
    if (limit < 1)
      throw CommError("ESPALIER_COMM_PIECE_ELEMENTS: expected a number of elements, found \"" + std::string(text) +
                      "\"");
    message_elements_ = round_elements_ = limit;
  }
  moving_.reserve(kSlots);
  polled = this;
  set_between_items(poll_between_items);
}

MpiRuntime::~MpiRuntime() {
  set_between_items(nullptr);
  polled = nullptr;
  if (!finalises_) return;
  // MPI_Finalize waits for all ranks. When an exception is on its way, this rank may be the only one to come here: then
  // leave without it, so that the launcher sees the exit code and ends the others.
  MPI_Request barrier = MPI_REQUEST_NULL;
  const bool failed = std::uncaught_exceptions() > 0;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  if (MPI_Ibarrier(MPI_COMM_WORLD, &barrier) != MPI_SUCCESS) return;
  for (int over = 0; over == 0;) {
    if (MPI_Test(&barrier, &over, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (over == 0 && failed && std::chrono::steady_clock::now() > limit) return;
    sched_yield();
  }
  MPI_Finalize();
}

Job& MpiRuntime::open(MpiCommunicator& owner, const Operation& operation) {
  for (Job& job : jobs_) {
    if (job.owner != nullptr) continue;
    job.operation = operation;
    job.owner = &owner;
    job.generation = job.generation == 0xffffffff ? 1 : job.generation + 1;
    job.done = false;
    job.phase = 0;
    job.halfway = false;
    job.at = 0;
    moving_.push_back(static_cast<std::uint32_t>(&job - jobs_.data()));
    return job;
  }
  throw CommError("group " + std::string(owner.name()) + ", rank " + std::to_string(owner.rank()) + ": " +
                  std::string(name_of(operation.verb)) + ": " + std::to_string(kSlots) +
                  " operations are open already: finish some");
}

Request MpiRuntime::request_of(const Job& job) const {
  return {static_cast<std::uint32_t>(&job - jobs_.data()), job.generation};
}

Job* MpiRuntime::find(Request request) {
  if (!request || request.slot >= kSlots) return nullptr;
  Job& job = jobs_[request.slot];
  return job.owner != nullptr && job.generation == request.generation ? &job : nullptr;
}

void MpiRuntime::close(Job& job) { job.owner = nullptr; }

void MpiRuntime::poll_between_items() noexcept {
  MpiRuntime* const runtime = polled;
  if (runtime == nullptr || runtime->moving_.empty() || std::this_thread::get_id() != runtime->thread_) return;
  MpiCommunicator& owner = *runtime->jobs_[runtime->moving_.front()].owner;
  try {
    runtime->poll();
  } catch (const std::exception& error) {  // nobody above expects a kernel to fail for this
    owner.abort(static_cast<int>(ExitCode::communication), error.what());
  }
}

void MpiRuntime::poll() {
  if (poll_hook != nullptr) poll_hook(poll_hook_data);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < moving_.size(); ++i) {
    Job& job = jobs_[moving_[i]];
    for (int passed = 1; passed != 0 && !job.done;) {
      ESPALIER_MPI(
          MPI_Testall(static_cast<int>(job.messages.size()), job.messages.data(), &passed, MPI_STATUSES_IGNORE));
      if (passed == 0) break;
      job.messages.clear();
      job.owner->advance(job);
    }
    if (!job.done) moving_[kept++] = moving_[i];
  }
  moving_.resize(kept);
}

}  // namespace espalier::comm
