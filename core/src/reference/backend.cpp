#include "espalier/backend.hpp"

#include "espalier/threads.hpp"
#include "reference/families.hpp"

namespace espalier {
namespace {

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(ThreadPool& pool)
      : device_(make_cpu_device()),
        matrix_(reference::make_matrix(pool)),
        attention_(reference::make_attention(pool)),
        norm_(reference::make_norm(pool)),
        elementwise_(reference::make_elementwise(pool)),
        loss_(reference::make_loss(pool)),
        update_(reference::make_update(pool)),
        random_(reference::make_random(pool)),
        kernels_{matrix_.get(), attention_.get(), norm_.get(),  elementwise_.get(),
                 loss_.get(),   update_.get(),    random_.get()} {}

  std::string description() const override { return "reference: plain loops, sums in FP32"; }
  Device& device() override { return *device_; }
  const KernelSet& kernels() override { return kernels_; }

  Reason supports(const Precision& precision) const override {
    for (DType dtype : {precision.working, precision.message, precision.accumulate}) {
      if (Reason reason = matrix_->supports(dtype)) return reason;
    }
    return {};
  }

  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) override { return communicator; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<MatrixKernels> matrix_;
  std::unique_ptr<AttentionKernels> attention_;
  std::unique_ptr<NormKernels> norm_;
  std::unique_ptr<ElementwiseKernels> elementwise_;
  std::unique_ptr<LossKernels> loss_;
  std::unique_ptr<UpdateKernels> update_;
  std::unique_ptr<RandomKernels> random_;
  KernelSet kernels_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(ThreadPool& pool) { return std::make_unique<ReferenceBackend>(pool); }

}  // namespace espalier
