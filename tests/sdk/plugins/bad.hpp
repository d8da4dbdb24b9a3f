#pragma once

#include <array>

#include "espalier/plugin.hpp"

/// A factory for descriptors that are refused before anything is made.
namespace espalier::sdk_test {

inline Monitor* create(const ConfigView& /*config*/, HostContext& /*host*/) { return nullptr; }
inline void destroy(Monitor* /*monitor*/) noexcept {}

}  // namespace espalier::sdk_test

namespace {
constinit const espalier::Factory kFactories[] = {
    espalier::factory<espalier::Monitor, espalier::sdk_test::create, espalier::sdk_test::destroy>("bad")};
}
