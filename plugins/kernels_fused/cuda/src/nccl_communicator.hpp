#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "espalier/communicator.hpp"
#include "espalier/device.hpp"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {

/// Asks every NCCL communicator of the process for errors that happened on the way.
/// @throws CommError naming group, rank and NCCL's text.
void poll_nccl();

/// A group over NCCL, made of one over MPI. Its operations are queued on a stream of the group's own: they begin when
/// the stream they were started after gets there, run one after another, and finishing one is an event. Send and
/// receive meet in the order in which they are started; tags are not looked at. Operands lie in device memory, or in
/// host memory that the device reaches; what is in other host memory belongs to the communicator this one was made of.
///
/// `sum_rank_order` and `max`: pieces travel point to point and are joined in rank order by a kernel of our own
/// (combine.hpp), in rounds that fit into memory reserved here. `sum_library`: NCCL's all-reduce and reduce-scatter.
class NcclCommunicator final : public Communicator {
 public:
  /// Collective over `inner`. @throws CommError, alike on all ranks, when NCCL fails, DeviceError when two ranks use
  /// one GPU.
  /// @param always  a group of one goes through NCCL, too, and so does what is split from it.
  NcclCommunicator(Device& device, std::unique_ptr<Communicator> inner, bool always = false);
  /// Does not communicate unless all operations were finished.
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return inner_->name(); }
  Request start(const Operation& operation, Stream& after) override;
  bool done(Request request) override;
  void finish(Request request, Stream& before) override;
  std::unique_ptr<Communicator> split(int colour, int key, std::string_view name) override;
  [[noreturn]] void abort(int code, std::string_view why) noexcept override;

  /// @throws CommError when NCCL has met an error since.
  void check_async() const;

 private:
  static constexpr std::size_t kSlots = 256;
  struct Slot {
    cudaEvent_t event = nullptr;  ///< first of what the operation waits for, then of its end
    std::uint32_t generation = 0;
    bool open = false;
  };

  void connect();
  void release() noexcept;
  std::int64_t check_shapes(const Operation& operation) const;
  [[noreturn]] void fail(const Operation& operation, std::string_view what) const;
  Slot* find(Request request);

  void launch(const Operation& operation, std::int64_t elements);
  void launch_library(const Operation& operation, std::int64_t elements);
  void all_reduce(const Operation& operation, std::int64_t elements);
  void reduce_scatter(const Operation& operation, std::int64_t elements);
  void all_to_all(const Operation& operation, std::int64_t elements);
  void join(const Operation& operation, const std::byte* own, std::byte* target, std::int64_t elements);
  /// Elements of a piece of which those of all other ranks fit into the scratch memory.
  std::int64_t most_elements(DType dtype) const;

  Device& device_;
  std::unique_ptr<Communicator> inner_;
  int rank_, size_;
  bool always_;
  ncclComm_t comm_ = nullptr;  // null in a group of one, unless always_
  cudaStream_t stream_ = nullptr;
  DeviceMemory scratch_;  // pieces of the other ranks
  std::array<Slot, kSlots> slots_;
  std::uint32_t next_slot_ = 0;
  int open_ = 0;
};

}  // namespace espalier::kernels_fused::cuda
