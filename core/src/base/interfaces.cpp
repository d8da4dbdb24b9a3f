// Destructors of the interfaces: they anchor each vtable and type_info in libespalier_core.so, so that dynamic_cast and
// exceptions work across plugins built with hidden visibility.
#include "espalier/plugin.hpp"
#include "espalier/threads.hpp"

namespace espalier {

AttentionKernels::~AttentionKernels() = default;
Backend::~Backend() = default;
Communicator::~Communicator() = default;
CommunicatorWrapper::~CommunicatorWrapper() = default;
DataParallel::~DataParallel() = default;
Dataset::~Dataset() = default;
bool Dataset::continues(std::uint64_t, std::int64_t) const { return false; }
Device::~Device() = default;
ElementwiseKernels::~ElementwiseKernels() = default;
HostContext::~HostContext() = default;
LossKernels::~LossKernels() = default;
MatrixKernels::~MatrixKernels() = default;
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
