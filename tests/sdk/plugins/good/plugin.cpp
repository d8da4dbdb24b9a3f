// A plugin that does nothing wrong unless its options tell it to.
#include <stdexcept>
#include <string>
#include <thread>

#include "espalier/plugin.hpp"

namespace {

thread_local std::string per_thread;  // its destructor must be mapped when a thread ends

// Implements a second interface, which hosts find by dynamic_cast.
class Good : public espalier::Monitor, public espalier::Dataset {
 public:
  Good(const espalier::ConfigView& config, espalier::HostContext& host) : host_(host) {
    const std::string fail = config.string("fail");
    if (fail == "error") throw espalier::Error(espalier::ExitCode::internal, "an error of Espalier");
    if (fail == "std") throw std::out_of_range("an error of the C++ library");
    if (fail == "int") throw 42;
    if (fail == "config") config.fail("size", "does not fit the model");
    if (fail == "io") throw espalier::IoError("/data/train.idx", "open", 2);
    host.log(espalier::LogLevel::info, "made with size " + std::to_string(config.integer("size")));
    worker_ = std::thread([] { per_thread = "a string too long for the small buffer of the C++ library"; });
  }
  ~Good() override { worker_.join(); }

  void metrics(const espalier::Progress& /*progress*/, std::span<const espalier::Metric> /*metrics*/) override {}
  void event(const espalier::Progress& /*progress*/, std::string_view kind, std::string_view /*text*/) override {
    if (kind == "throw") throw espalier::NumericsError("thrown across the border");
    host_.log(espalier::LogLevel::info, kind);
  }
  void flush() override {}
  void resume(const espalier::Progress& /*progress*/) override {}

  std::span<const espalier::SampleSet> sets() const override { return {}; }
  std::int64_t sample_tokens() const override { return 7; }
  void read(int /*set*/, std::int64_t /*index*/, std::span<std::int32_t> /*tokens*/,
            std::span<std::uint8_t> /*loss_mask*/) const override {}
  espalier::SampleOrigin origin(int /*set*/, std::int64_t /*index*/) const override { return {}; }
  std::uint64_t fingerprint() const override { return 0; }

 private:
  espalier::HostContext& host_;
  std::thread worker_;
};

espalier::Monitor* create(const espalier::ConfigView& config, espalier::HostContext& host) {
  if (config.string("fail") == "null") return nullptr;
  return new Good(config, host);
}
void destroy(espalier::Monitor* monitor) noexcept { delete monitor; }

constinit const espalier::OptionSpec kOptions[] = {
    {"size", espalier::OptionType::integer, "3", "of nothing", 1},
    {"fail", espalier::OptionType::string, "\"no\"", "how to fail"},
};

constinit const espalier::Factory kFactories[] = {
    espalier::factory<espalier::Monitor, create, destroy>("good", kOptions, std::size(kOptions))};

}  // namespace

ESPALIER_PLUGIN("sdk_good", "1.2.3", "Apache-2.0", "Does nothing wrong", kFactories);
