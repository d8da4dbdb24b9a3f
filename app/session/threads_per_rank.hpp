#pragma once

namespace espalier::app {

/// Compute threads of this rank: what the recipe says, or its allowed cores over the ranks that share them, at least one.
int threads_per_rank(int asked, int ranks_on_host);

/// Tells OpenMP libraries that plugins bring along the same number, and to wait passively: ranks often outnumber cores. Before any
/// plugin is loaded; a value the user set stays.
void prepare_openmp(int threads);

}  // namespace espalier::app
