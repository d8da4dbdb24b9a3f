#pragma once

#include "espalier/kernels.hpp"

namespace espalier::kernels_fused::cuda {

/// Initial values. Computed in FP64 and rounded once; the Philox words are the core's, logarithm, sine and cosine the
/// device library's, which may differ from the host's in the last bit of the FP64 number before that rounding.
class CudaRandom final : public RandomKernels {
 public:
  void normal(const View& dst, PhiloxKey key, std::int64_t first, double mean, double std, Stream& stream) override;
  void uniform(const View& dst, PhiloxKey key, std::int64_t first, double low, double high, Stream& stream) override;
};

}  // namespace espalier::kernels_fused::cuda
