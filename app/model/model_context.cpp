#include "model/model_context.hpp"

#include <vector>

#include "model/roles.hpp"

namespace espalier::app {
namespace {

/// Every piece of the head reads and writes its whole FP32 weight gradient, so few pieces are better: on a CPU the
/// logits should stay in its caches, an accelerator has none of that size and memory to spare.
std::int64_t logits_bytes(bool cpu) { return std::int64_t{cpu ? 64 : 2048} << 20; }

}  // namespace

ModelContext make_context(const RunFacts& facts, const ParameterList& parameters, Backend& backend,
                          TensorParallel& tensor, DataParallel& data) {
  const OwnWidths own = own_widths(facts.model, parameters, tensor);
  ModelContext context;
  context.shape = &facts.model;
  context.working = facts.precision.working;
  context.device = &backend.device();
  context.kernels = backend.kernels();
  context.stream = &context.device->lane(Lane::compute);
  context.tensor = &tensor;
  context.data = &data;
  context.own_heads = own.heads;
  context.first_head = own.first_head;
  context.own_ffn = own.ffn;
  context.seed = facts.seed;
  context.logits_bytes = logits_bytes(context.device->host_accessible());
  return context;
}

DeviceMemory load_slopes(ModelContext& context) {
  if (context.shape->positions > 0) return {};
  std::vector<float> slopes(static_cast<std::size_t>(context.shape->heads));
  alibi_slopes(context.shape->heads, slopes.data());
  DeviceMemory memory = context.device->reserve(static_cast<std::size_t>(context.own_heads) * sizeof(float), "tables");
  context.device->copy(View::vector(slopes.data() + context.first_head, context.own_heads, DType::f32),
                       View::vector(memory.data(), context.own_heads, DType::f32), *context.stream);
  context.device->wait(*context.stream);
  context.slopes = reinterpret_cast<const float*>(memory.data());
  return memory;
}

}  // namespace espalier::app
