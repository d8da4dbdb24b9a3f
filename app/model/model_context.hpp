#pragma once

#include "espalier/backend.hpp"
#include "espalier/facts.hpp"
#include "model/context.hpp"
#include "model/parameters.hpp"

namespace espalier::app {

/// A context of a run: shape, precision and seed from the facts, own widths from where the tensor strategy places
/// parameters. Arena and slopes are left to the caller.
ModelContext make_context(const RunFacts& facts, const ParameterList& parameters, Backend& backend,
                          TensorParallel& tensor, DataParallel& data);

/// ALiBi slopes of the own heads into device memory, and context.slopes to them; nothing with learned positions.
DeviceMemory load_slopes(ModelContext& context);

}  // namespace espalier::app
