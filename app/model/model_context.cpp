#include "model/model_context.hpp"

#include <vector>

#include "model/roles.hpp"

namespace espalier::app {

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
  return context;
}

DeviceMemory load_slopes(ModelContext& context) {
  if (context.shape->positions > 0) return {};
  std::vector<float> slopes(static_cast<std::size_t>(context.shape->heads));
  alibi_slopes(context.shape->heads, slopes.data());
  DeviceMemory memory =
      context.device->reserve(static_cast<std::size_t>(context.own_heads) * sizeof(float), "tables");
  context.device->copy(View::vector(slopes.data() + context.first_head, context.own_heads, DType::f32),
                       View::vector(memory.data(), context.own_heads, DType::f32), *context.stream);
  context.device->wait(*context.stream);
  context.slopes = reinterpret_cast<const float*>(memory.data());
  return memory;
}

}  // namespace espalier::app
