#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "queue.hpp"

/// What the handles of the CUDA runtime point to in the fake.
namespace fake {

/// Records are numbered; a wait is for the number that was the newest when it was queued, as CUDA has it.
struct EventState {
  std::uint64_t recorded = 0;  ///< number of the newest record that was queued
  std::uint64_t done = 0;      ///< number of the newest record that the stream has passed
  double passed = 0;           ///< milliseconds of the fake clock at that moment
  bool captured = false;       ///< the newest record was one of a capture
};

struct Item {
  std::string name;
  Step step;                          ///< empty for a wait
  std::shared_ptr<EventState> event;  ///< of a wait
  std::uint64_t version = 0;          ///< of a wait
  bool host = false;                  ///< a host function: device memory stays closed
  bool always = false;                ///< also on a device that has faulted: the record of an event
  std::shared_ptr<const int> graph;   ///< of work that a graph's launch has queued
};

/// What a stream takes down in place of running it.
struct Capture {
  bool valid = true;  ///< until a call that a capture forbids
  std::vector<Item> items;
};

struct StreamState {
  int number = 0;
  std::deque<Item> items;
  std::unique_ptr<Capture> capture;  ///< while it lasts
};

/// Notes the error for cudaGetLastError and returns it.
cudaError_t fail(cudaError_t error);

/// At the end of the stream, or of its capture.
void push(cudaStream_t stream, Item item);
/// One capture at a time.
void begin_capture(cudaStream_t stream);
void end_capture();
/// For calls that are unsafe while this thread captures: true, with the capture spoiled, while it does.
bool forbidden_in_capture();

/// Queues a host function (cudaLaunchHostFunc).
void enqueue_host(cudaStream_t stream, std::string_view name, Step step);
void record(cudaEvent_t event, cudaStream_t stream);
void wait_event(cudaStream_t stream, cudaEvent_t event);
bool is_done(cudaEvent_t event);
bool is_idle(cudaStream_t stream);

/// What the work said whose failure is the sticky error.
const std::string& fault_text();
/// Makes the emulator of kernels put its launches into the queues. Any number of times.
void queue_emulated_launches();

/// Runs work until the stream (the event, everything) is done, and as much else as the seed says.
void run_until_idle(cudaStream_t stream);
void run_until_done(cudaEvent_t event);
void run_all();

cudaStream_t make_stream();
void drop_stream(cudaStream_t stream);
cudaEvent_t make_event();
void drop_event(cudaEvent_t event);
/// Ends the process unless the handle is a live one; the default streams are refused, since they wait for others behind
/// our back.
void check_stream(cudaStream_t stream, const char* what);
void check_event(cudaEvent_t event, const char* what);

}  // namespace fake

struct CUstream_st : fake::StreamState {};
struct CUevent_st {
  std::shared_ptr<fake::EventState> state = std::make_shared<fake::EventState>();
};
