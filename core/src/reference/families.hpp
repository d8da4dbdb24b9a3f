#pragma once

#include <memory>

#include "espalier/kernels.hpp"
#include "espalier/threads.hpp"

/// One maker a family; each keeps the pool by reference.
namespace espalier::reference {

std::unique_ptr<MatrixKernels> make_matrix(ThreadPool& pool);
std::unique_ptr<AttentionKernels> make_attention(ThreadPool& pool);
std::unique_ptr<NormKernels> make_norm(ThreadPool& pool);
std::unique_ptr<ElementwiseKernels> make_elementwise(ThreadPool& pool);
std::unique_ptr<LossKernels> make_loss(ThreadPool& pool);
std::unique_ptr<UpdateKernels> make_update(ThreadPool& pool);
std::unique_ptr<RandomKernels> make_random(ThreadPool& pool);

}  // namespace espalier::reference
