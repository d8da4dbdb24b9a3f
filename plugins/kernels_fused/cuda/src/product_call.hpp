#pragma once

#include "check.hpp"
#include "product_plan.hpp"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {

/// One product, as it is sent or kept back.
struct ProductCall {
  cublasLtHandle_t library;
  ProductPlan* plan;
  std::uint64_t
      number;  ///< of the plan: work that is kept is compared as bytes, and memory of a plan that went is used again
  const void *a, *b;
  void *vector, *auxiliary, *dst;
  float alpha, beta;
  void* workspace;
  std::size_t workspace_bytes;

  void operator()(cudaStream_t stream) const {
    plan->point(vector, auxiliary);
    check_blas(cublasLtMatmul(library, plan->operation, &alpha, b, plan->b, a, plan->a, &beta, dst, plan->dst, dst,
                              plan->dst, &plan->algorithm, workspace, workspace_bytes, stream),
               plan->text);
    after_launch(stream, plan->text.c_str());
  }
};

}  // namespace espalier::kernels_fused::cuda
