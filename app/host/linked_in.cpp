#include "host/linked_in.hpp"

namespace espalier::app {
namespace {

std::span<const PluginDescriptor* const> descriptors_of_program;

}  // namespace

void link_in(std::span<const PluginDescriptor* const> descriptors) { descriptors_of_program = descriptors; }

std::span<const PluginDescriptor* const> linked_in() { return descriptors_of_program; }

}  // namespace espalier::app
