#pragma once

#include <array>

#include "espalier/communicator.hpp"

namespace espalier::parallel_zero {

/// Several operations of one group in flight; the oldest is finished when there are too many.
class Window {
 public:
  Window(Communicator& group, Stream& lane) : group_(group), lane_(lane) {}
  void add(Request request) {
    Request& oldest = open_[next_++ % open_.size()];
    group_.finish(oldest, lane_);
    oldest = request;
  }
  void finish_all() {
    for (std::size_t i = 0; i < open_.size(); ++i) add({});
  }

 private:
  Communicator& group_;
  Stream& lane_;
  std::array<Request, 4> open_{};
  std::size_t next_ = 0;
};

}  // namespace espalier::parallel_zero
