#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "espalier/device.hpp"

namespace espalier::bench {

/// What the time of a call is bounded by.
enum class Bound : std::uint8_t { memory, product, attention, attention_backward };

/// A call of a kernel family, or of the device: which part of a step it belongs to, and the least that it has to do.
struct Work {
  std::string part;
  double bytes = 0;  ///< each operand read once, each result written once
  double flops = 0;  ///< multiply-add = 2; of attention what the causal mask leaves
  Bound bound = Bound::memory;
};

/// The calls of one step, summed up by part.
class CallRecord {
 public:
  enum class Mode : std::uint8_t {
    off,    ///< calls pass through
    dry,    ///< they are noted and not made
    timed,  ///< they are noted, made one at a time and waited for
  };
  struct Part {
    Work sum;
    std::int64_t calls = 0;
    double seconds = 0;  ///< timed only, waits included
  };

  Mode mode = Mode::off;

  /// @param device  of the stream: what is waited for.
  /// @param work    gives the Work; asked for when it is noted.
  template <class Describe, class Call>
  void make(Device& device, Stream& stream, const Describe& work, const Call& call) {
    if (mode == Mode::off) return call();
    const Work one = work();
    Part& part = parts_[one.part];
    part.sum.part = one.part;
    part.sum.bound = one.bound;
    part.sum.bytes += one.bytes;
    part.sum.flops += one.flops;
    ++part.calls;
    if (mode == Mode::dry) return;
    device.wait(stream);
    const auto begin = std::chrono::steady_clock::now();
    call();
    device.wait(stream);
    part.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  const std::map<std::string, Part>& parts() const { return parts_; }

 private:
  std::map<std::string, Part> parts_;
};

}  // namespace espalier::bench
