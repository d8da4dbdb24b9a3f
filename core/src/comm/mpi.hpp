#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mpi_runtime.hpp"
#include "espalier/communicator.hpp"

namespace espalier::comm {

/// A group of MPI ranks. All traffic is point to point (the barrier excepted), so that reductions have one order and
/// operations of several rounds need no library collective in a place that other ranks have not reached.
class MpiCommunicator final : public Communicator {
 public:
  /// Takes over `comm`, which must not be used by anyone else.
  MpiCommunicator(std::shared_ptr<MpiRuntime> runtime, MPI_Comm comm, std::string_view name);
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return name_; }
  Request start(const Operation& operation, Stream& after) override;
  bool done(Request request) override;
  void finish(Request request, Stream& before) override;
  std::unique_ptr<Communicator> split(int colour, int key, std::string_view name) override;
  [[noreturn]] void abort(int code, std::string_view why) noexcept override;

  /// The messages of the last phase have passed: does what follows from them and starts the next ones, or sets `done`.
  void advance(Job& job);

 private:
  void advance_all_reduce(Job& job);
  void advance_small_all_reduce(Job& job);
  void advance_reduce_scatter(Job& job);
  void advance_exchange(Job& job);
  void advance_broadcast(Job& job);
  void advance_message(Job& job);

  void send(Job& job, const std::byte* data, std::int64_t elements, int peer);
  void receive(Job& job, std::byte* data, std::int64_t elements, int peer);
  /// Receives one piece of `elements` from each other rank into the scratch.
  void receive_pieces(Job& job, std::int64_t elements);
  /// Combines the scratch and the own piece in rank order.
  void combine_pieces(Job& job, const std::byte* own, std::byte* dst, std::int64_t elements);

  std::shared_ptr<MpiRuntime> runtime_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::string name_;
  int rank_ = 0;
  int size_ = 1;
  int open_ = 0;
  std::uint32_t sequence_ = 0;
  std::vector<const void*> pieces_;  // [size]
};

}  // namespace espalier::comm
