#pragma once

#include <memory>

#include "call_record.hpp"
#include "espalier/backend.hpp"

namespace espalier::bench {

/// The backend, whose calls are noted in `record`; what it is asked about shapes it answers itself. Both are kept by
/// reference. Work of the random family passes unnoticed: a step has none.
std::unique_ptr<Backend> watch(Backend& backend, CallRecord& record);

/// The same without a device: memory is a range of addresses with nothing behind, so that a model of any size can be
/// walked; calls are noted and not made, copies to the host give zeros. `record.mode` must stay `dry`.
std::unique_ptr<Backend> watch_dry(Backend& backend, CallRecord& record);

}  // namespace espalier::bench
