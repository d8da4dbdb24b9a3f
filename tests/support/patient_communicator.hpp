// A communicator whose ranks sleep while they wait: for jobs of more ranks than cores, on machines that have other
// work.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "espalier/communicator.hpp"

namespace espalier::testing_support {

class PatientCommunicator final : public CommunicatorWrapper {
 public:
  using CommunicatorWrapper::CommunicatorWrapper;

  void finish(Request request, Stream& before) override {
    constexpr int kPolls = 20;  // most messages are there by then
    for (int polls = 0; !done(request); ++polls) {
      if (polls >= kPolls) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    CommunicatorWrapper::finish(request, before);
  }
  std::unique_ptr<Communicator> split(int colour, int key, std::string_view name) override {
    auto part = CommunicatorWrapper::split(colour, key, name);
    return part == nullptr ? nullptr : std::make_unique<PatientCommunicator>(std::move(part));
  }
};

}  // namespace espalier::testing_support
