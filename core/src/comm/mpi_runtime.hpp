#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "espalier/communicator.hpp"

/// Checks an MPI call: expression, MPI's text and rank go into the CommError.
#define ESPALIER_MPI(call) ::espalier::comm::check_mpi((call), #call)

namespace espalier::comm {

void check_mpi(int code, const char* call);

class MpiCommunicator;

/// An operation on its way: a small state machine that MpiCommunicator::advance moves on whenever its messages have
/// passed.
struct Job {
  Operation operation;
  MpiCommunicator* owner = nullptr;  // null: slot is free
  std::uint32_t generation = 0;
  bool done = false;
  int phase = 0;                      // added to the tag
  bool halfway = false;               // the first half of a round is through
  int tag = 0;                        // of the first phase
  std::int64_t elements = 0;          // of a piece
  std::int64_t at = 0;                // elements of a piece that are through
  std::vector<MPI_Request> messages;  // capacity is kept from use to use
  std::vector<std::byte> scratch;     // pieces of the others; kept likewise
};

/// MPI, once a process: initialised by the first communicator, finalised after the last, whatever the order they go in.
/// Holds the requests of all groups, because MPI moves only while polled, and whoever waits must move them all.
class MpiRuntime {
 public:
  static std::shared_ptr<MpiRuntime> acquire();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;
  ~MpiRuntime();

  /// A slot for an operation of `owner`; the caller then moves it on for the first time.
  Job& open(MpiCommunicator& owner, const Operation& operation);
  Request request_of(const Job& job) const;
  /// The job of a request; null when it is over and released.
  Job* find(Request request);
  void close(Job& job);
  /// Moves all open operations on as far as they go without waiting.
  void poll();
  /// The same for the run's only runtime, between items of kernels, if the calling thread is the one that communicates.
  static void poll_between_items() noexcept;

  /// Elements of one message, and of one round of a reduction: bounds scratch memory. Lowered by
  /// ESPALIER_COMM_PIECE_ELEMENTS in tests.
  std::int64_t message_elements() const { return message_elements_; }
  std::int64_t round_elements() const { return round_elements_; }

 private:
  static constexpr std::size_t kSlots = 256;

  MpiRuntime();

  bool finalises_ = false;
  std::int64_t message_elements_ = std::int64_t{1} << 28;
  std::int64_t round_elements_ = std::int64_t{1} << 22;
  std::array<Job, kSlots> jobs_;
  std::thread::id thread_ = std::this_thread::get_id();  // the one that communicates
  std::vector<std::uint32_t> moving_;                    // slots of jobs that are not done, oldest first
};

}  // namespace espalier::comm
