// A backend whose memory the host cannot reach and whose work is late: what holds on it holds on a GPU. For tests.
#include "espalier/plugin.hpp"

#include <fstream>

#include "communicator.hpp"
#include "espalier/polling.hpp"
#include "kernels.hpp"

namespace espalier::remote {

void Caller::require(const char* what, const void* data) const {
  if (data == nullptr || device_.queues().memory().holds(data)) return;
  throw DeviceError(std::string("remote: ") + what + ": an operand lies in host memory");
}

void Caller::require(const char* what, const Attention& args) const {
  require(what, args.q);
  require(what, args.k);
  require(what, args.v);
  require(what, args.out);
  require(what, static_cast<const void*>(args.slopes));
  require(what, static_cast<const void*>(args.key_lengths));
  require(what, args.saved);
}

constexpr OptionSpec kOptions[] = {
    {"seed", OptionType::integer, "0", "of the order in which queues run", 0, 1e9},
    {"waits", OptionType::string, "\"\"", "file that gets the number of times the host waited; empty for none"},
};

class RemoteBackend final : public Backend {
 public:
  RemoteBackend(const ConfigView& config, HostContext& host)
      : waits_(config.string("waits")),
        device_(static_cast<std::uint64_t>(config.integer("seed"))),
        inner_(make_reference_backend(host.threads())),
        caller_(device_, *inner_),
        matrix_(caller_, *inner_->kernels().matrix),
        attention_(caller_, *inner_->kernels().attention),
        norm_(caller_, *inner_->kernels().norm),
        elementwise_(caller_, *inner_->kernels().elementwise),
        loss_(caller_, *inner_->kernels().loss),
        update_(caller_, *inner_->kernels().update),
        random_(caller_, *inner_->kernels().random),
        kernels_{&matrix_, &attention_, &norm_, &elementwise_, &loss_, &update_, &random_} {
    const Grid& grid = host.facts().grid;
    rank_ = (grid.pipeline_rank * grid.data + grid.data_rank) * grid.tensor + grid.tensor_rank;
    set_poll_hook([](void* queues) { static_cast<Queues*>(queues)->poll(); }, &device_.queues());
  }
  ~RemoteBackend() override {
    set_poll_hook(nullptr, nullptr);
    if (!waits_.empty()) std::ofstream(waits_ + "." + std::to_string(rank_)) << device_.waits() << "\n";
  }

  std::string description() const override { return inner_->description(); }
  Device& device() override { return device_; }
  const KernelSet& kernels() override { return kernels_; }
  Reason supports(const Precision& precision) const override { return inner_->supports(precision); }
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) override {
    return std::make_unique<RemoteCommunicator>(device_, std::move(communicator));
  }

 private:
  std::string waits_;
  int rank_ = 0;
  RemoteDevice device_;
  std::unique_ptr<Backend> inner_;
  Caller caller_;
  RemoteMatrix matrix_;
  RemoteAttention attention_;
  RemoteNorm norm_;
  RemoteElementwise elementwise_;
  RemoteLoss loss_;
  RemoteUpdate update_;
  RemoteRandom random_;
  KernelSet kernels_;
};

constinit const Factory kFactories[] = {
    factory_of<Backend, RemoteBackend>("cpu", kOptions, std::size(kOptions)),
};

}  // namespace espalier::remote

ESPALIER_PLUGIN("remote", "0.1.0", "Apache-2.0", "a device the host cannot reach, for tests",
                espalier::remote::kFactories);
