// Capture of streams as graphs, by the rules of the real runtime as far as one thread and graphs of one stream go.
#include <cuda_runtime_api.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "state.hpp"

struct CUgraph_st {
  std::vector<fake::Item> items;
};
struct CUgraphExec_st {
  std::vector<fake::Item> items;
  std::shared_ptr<const int> token;  ///< queued work of its launches holds it, too
};

namespace {

std::set<CUgraph_st*>& graphs() {
  static auto* const all = new std::set<CUgraph_st*>;
  return *all;
}
std::set<CUgraphExec_st*>& executables() {
  static auto* const all = new std::set<CUgraphExec_st*>;
  return *all;
}

void check_live(cudaGraphExec_t executable, const char* what) {
  if (executables().count(executable) == 0)
    fake::violation(std::string(what) + ": an executable graph that does not exist");
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  fake::check_stream(stream, "cudaStreamBeginCapture");
  if (mode != cudaStreamCaptureModeThreadLocal) {
    fake::violation("a capture in another mode than that of this thread: calls of NCCL's threads would end it");
  }
  if (fake::sticky_error() != cudaSuccess) return fake::sticky_error();
  if (stream->capture != nullptr) return fake::fail(cudaErrorInvalidValue);
  stream->capture = std::make_unique<fake::Capture>();
  fake::begin_capture(stream);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  fake::check_stream(stream, "cudaStreamIsCapturing");
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->valid   ? cudaStreamCaptureStatusActive
                                       : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  fake::check_stream(stream, "cudaStreamEndCapture");
  *graph = nullptr;
  if (stream->capture == nullptr) return fake::fail(cudaErrorInvalidValue);
  const std::unique_ptr<fake::Capture> capture = std::move(stream->capture);
  fake::end_capture();
  if (!capture->valid) return fake::fail(cudaErrorStreamCaptureInvalidated);
  *graph = *graphs().insert(new CUgraph_st{std::move(capture->items)}).first;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  if (graphs().count(graph) == 0) fake::violation("cudaGraphInstantiate: a graph that does not exist");
  if (flags != 0) return fake::fail(cudaErrorInvalidValue);
  if (fake::forbidden_in_capture()) return fake::fail(cudaErrorStreamCaptureUnsupported);
  *executable = *executables().insert(new CUgraphExec_st{graph->items, std::make_shared<const int>(0)}).first;
  return fake::sticky_error();
}

cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (graphs().count(graph) == 0) fake::violation("cudaGraphGetNodes: a graph that does not exist");
  if (nodes != nullptr) fake::violation("cudaGraphGetNodes: only their number is known");
  *count = graph->items.size();
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  check_live(executable, "cudaGraphUpload");
  fake::check_stream(stream, "cudaGraphUpload");
  return fake::sticky_error();
}

/// The work of a graph of one stream runs as work of the stream it is launched on: after what was queued there before,
/// before what is queued later, and other streams may get between any two pieces.
cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  check_live(executable, "cudaGraphLaunch");
  fake::check_stream(stream, "cudaGraphLaunch");
  if (stream->capture != nullptr) fake::violation("cudaGraphLaunch: the fake has no graphs within graphs");
  for (fake::Item item : executable->items) {
    item.graph = executable->token;
    fake::push(stream, std::move(item));
  }
  return fake::sticky_error();
}

cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t executable) {
  check_live(executable, "cudaGraphExecDestroy");
  if (executable->token.use_count() > 1) fake::violation("cudaGraphExecDestroy: a graph that is still to run");
  executables().erase(executable);
  delete executable;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
  if (graphs().erase(graph) == 0) fake::violation("cudaGraphDestroy: a graph that does not exist");
  delete graph;
  return cudaSuccess;
}

}  // extern "C"
