// A communicator that goes wrong once, at the n-th operation started (split groups are left alone).
#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "espalier/communicator.hpp"

namespace espalier::testing_support {

struct Fault {
  enum What : std::uint8_t { refuse, delay, flip_bit, die };
  What what = refuse;
  std::int64_t at = 1;  ///< counts from 1
  std::chrono::milliseconds pause{50};
};

class FaultyCommunicator final : public CommunicatorWrapper {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> group, Fault fault)
      : CommunicatorWrapper(std::move(group)), fault_(fault) {}

  Request start(const Operation& operation, Stream& after) override {
    if (++started_ != fault_.at) return CommunicatorWrapper::start(operation, after);
    switch (fault_.what) {
      case Fault::refuse:
        throw CommError("group " + std::string(name()) + ": refused on purpose");
      case Fault::delay:
        std::this_thread::sleep_for(fault_.pause);
        break;
      case Fault::flip_bit:
        if (!operation.source.empty()) *operation.source.as<std::uint8_t>() ^= 0x10;
        break;
      case Fault::die:
        raise(SIGKILL);
        break;
    }
    return CommunicatorWrapper::start(operation, after);
  }

 private:
  Fault fault_;
  std::int64_t started_ = 0;
};

}  // namespace espalier::testing_support
