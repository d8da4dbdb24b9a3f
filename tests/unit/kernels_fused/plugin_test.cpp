// The library as the host loads it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cfenv>
#include <string>

#include "espalier/plugin.hpp"

namespace {

TEST(Plugin, LoadingLeavesTheFloatingPointModeAlone) {
  const unsigned before = _mm_getcsr();
  const int rounding = std::fegetround();
  void* library = dlopen(ESPALIER_PLUGIN_DIR "/libkernels_fused.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(_mm_getcsr(), before);
  EXPECT_EQ(std::fegetround(), rounding);

  const auto* descriptor = static_cast<const espalier::PluginDescriptor*>(dlsym(library, "espalier_plugin_v1"));
  ASSERT_NE(descriptor, nullptr);
  EXPECT_STREQ(descriptor->name, "kernels_fused");
  ASSERT_EQ(descriptor->factory_count, 1u);
  EXPECT_STREQ(descriptor->factories[0].kind, "backend");
  ASSERT_EQ(descriptor->factories[0].option_count, 1u);
  EXPECT_STREQ(descriptor->factories[0].options[0].name, "instruction_set");
}

}  // namespace
