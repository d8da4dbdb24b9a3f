// Destructors of the interfaces: they anchor each vtable and type_info in libespalier_core.so, so that dynamic_cast and
// exceptions work across plugins built with hidden visibility. And what a plugin need not override.
#include "espalier/plugin.hpp"
#include "espalier/threads.hpp"

namespace espalier {

AttentionKernels::~AttentionKernels() = default;
Backend::~Backend() = default;
void Backend::prepare(const Preparation&) {}
Communicator::~Communicator() = default;
CommunicatorWrapper::~CommunicatorWrapper() = default;
DataParallel::~DataParallel() = default;
Dataset::~Dataset() = default;
bool Dataset::continues(std::uint64_t, std::int64_t) const { return false; }
Device::~Device() = default;
ElementwiseKernels::~ElementwiseKernels() = default;
std::size_t ElementwiseKernels::embedding_workspace(std::int64_t, std::int64_t) const { return 0; }
HostContext::~HostContext() = default;
LossKernels::~LossKernels() = default;
MatrixKernels::~MatrixKernels() = default;
bool MatrixKernels::fuses(const Matmul&) const { return false; }
std::size_t MatrixKernels::sum_workspace(std::int64_t, std::int64_t) const { return 0; }
Monitor::~Monitor() = default;
NormKernels::~NormKernels() = default;
Optimizer::~Optimizer() = default;
PipelineParallel::~PipelineParallel() = default;
RandomKernels::~RandomKernels() = default;
Stream::~Stream() = default;
TensorParallel::~TensorParallel() = default;
ThreadPool::~ThreadPool() = default;
Tokenizer::~Tokenizer() = default;
TokenWriter::~TokenWriter() = default;
DatasetTool::~DatasetTool() = default;
UpdateKernels::~UpdateKernels() = default;

}  // namespace espalier
