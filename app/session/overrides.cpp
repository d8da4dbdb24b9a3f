#include "session/overrides.hpp"

namespace espalier::app {
namespace {

class OverriddenBackend final : public Backend {
 public:
  OverriddenBackend(Owned<Backend> base, std::map<std::string, Owned<Backend>> overrides)
      : base_(std::move(base)), overrides_(std::move(overrides)), kernels_(base_->kernels()) {
    for (auto& [family, provider] : overrides_) {
      if (!base_->device().host_accessible()) {
        throw ConfigError("backend.overrides." + family + ": a provider for the CPU cannot work on the memory of " +
                          std::string(base_->device().name()));
      }
      if (!provider->device().host_accessible()) {
        throw ConfigError("backend.overrides." + family + ": " + provider->description() +
                          " works on memory of its own, where the other families' results are not");
      }
      const KernelSet& other = provider->kernels();
      if (family == "matrix") kernels_.matrix = other.matrix;
      else if (family == "attention") kernels_.attention = other.attention;
      else if (family == "norm") kernels_.norm = other.norm;
      else if (family == "elementwise") kernels_.elementwise = other.elementwise;
      else if (family == "loss") kernels_.loss = other.loss;
      else if (family == "update") kernels_.update = other.update;
      else if (family == "random") kernels_.random = other.random;
      else throw ConfigError("backend.overrides." + family +
                             ": no such kernel family; there are matrix, attention, norm, elementwise, loss, update, random");
    }
  }

  std::string description() const override {
    std::string text = base_->description();
    for (const auto& [family, provider] : overrides_) text += "; " + family + " by " + provider->description();
    return text;
  }
  Device& device() override { return base_->device(); }
  const KernelSet& kernels() override { return kernels_; }
  Reason supports(const Precision& precision) const override {
    if (auto reason = base_->supports(precision)) return reason;
    for (const auto& [family, provider] : overrides_) {
      if (auto reason = provider->supports(precision)) return family + ": " + *reason;
    }
    return std::nullopt;
  }
  void prepare(const Preparation& work) override {
    base_->prepare(work);
    for (auto& [family, provider] : overrides_) provider->prepare(work);
  }
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) override {
    return base_->wrap(std::move(communicator));
  }

 private:
  Owned<Backend> base_;
  std::map<std::string, Owned<Backend>> overrides_;
  KernelSet kernels_;
};

}  // namespace

Owned<Backend> override_families(Owned<Backend> base, std::map<std::string, Owned<Backend>> overrides) {
  if (overrides.empty()) return base;
  return own<Backend>(std::make_unique<OverriddenBackend>(std::move(base), std::move(overrides)));
}

}  // namespace espalier::app
