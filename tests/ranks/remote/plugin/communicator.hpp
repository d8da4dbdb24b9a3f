// A communicator of the remote device: operations are queued, begin when their stream gets there, and finishing one is
// an event.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device.hpp"
#include "espalier/communicator.hpp"

namespace espalier::remote {

/// Operations of a group run one after another, as NCCL's do. They travel through host memory over the wrapped
/// communicator. While one is under way its source may not change and nobody may touch its target: both are found out.
class RemoteCommunicator final : public Communicator {
 public:
  RemoteCommunicator(RemoteDevice& device, std::unique_ptr<Communicator> inner);
  ~RemoteCommunicator() override;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  Request start(const Operation& operation, Stream& after) override;
  bool done(Request request) override;
  void finish(Request request, Stream& before) override;
  std::unique_ptr<Communicator> split(int colour, int key, std::string_view name) override;
  [[noreturn]] void abort(int code, std::string_view why) noexcept override;

 private:
  struct Flight;
  struct Slot {
    std::shared_ptr<Flight> flight;
    std::uint32_t generation = 0;
  };

  void require_device(const View& view, const Operation& operation) const;
  void begin(Flight& flight);
  void arrive(Flight& flight);
  Outcome advance(Flight& flight);

  RemoteDevice& device_;
  std::unique_ptr<Communicator> inner_;
  int queue_;
  std::unique_ptr<Device> host_ = make_cpu_device();  // for a stream of the host's
  std::vector<Slot> slots_;
};

}  // namespace espalier::remote
