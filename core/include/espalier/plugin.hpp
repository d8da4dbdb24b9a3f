#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "espalier/abi.hpp"
#include "espalier/backend.hpp"
#include "espalier/config.hpp"
#include "espalier/dataset.hpp"
#include "espalier/export.hpp"
#include "espalier/host.hpp"
#include "espalier/monitor.hpp"
#include "espalier/optimizer.hpp"
#include "espalier/parallel/data.hpp"
#include "espalier/parallel/pipeline.hpp"
#include "espalier/parallel/tensor.hpp"
#include "espalier/tokenizer.hpp"

/// What a plugin exports: one constant descriptor, `espalier_plugin_v1`, and a section `espalier_id` that the host reads from the
/// file before it maps any code. See docs/plugin-guide.md.
namespace espalier {

/// Kind names of the interfaces, as recipes and `plugins list` show them.
template <class Interface>
inline constexpr const char* kKind = nullptr;
template <>
inline constexpr const char* kKind<Backend> = "backend";
template <>
inline constexpr const char* kKind<TensorParallel> = "tensor_parallel";
template <>
inline constexpr const char* kKind<PipelineParallel> = "pipeline_parallel";
template <>
inline constexpr const char* kKind<DataParallel> = "data_parallel";
template <>
inline constexpr const char* kKind<Optimizer> = "optimizer";
template <>
inline constexpr const char* kKind<Dataset> = "dataset";
template <>
inline constexpr const char* kKind<TokenWriter> = "token_writer";
template <>
inline constexpr const char* kKind<DatasetTool> = "dataset_tool";
template <>
inline constexpr const char* kKind<Tokenizer> = "tokenizer";
template <>
inline constexpr const char* kKind<Monitor> = "monitor";

/// One thing a plugin can make. `create` returns an Interface* as void*; typed thunks made by factory<> guarantee that.
struct Factory {
  const char* kind;
  const char* name;                  ///< what is made, one word: "adamw"
  const OptionSpec* options;         ///< of the recipe table that names the plugin
  std::size_t option_count;
  void* (*create)(const ConfigView& config, HostContext& host);
  void (*destroy)(void* object) noexcept;
};

/// Only ever appended to; `struct_size` tells how much a plugin has.
struct PluginDescriptor {
  std::uint32_t magic;        ///< kPluginMagic
  std::uint32_t struct_size;  ///< sizeof(PluginDescriptor) where the plugin was built
  std::uint32_t abi_major;
  std::uint32_t abi_minor;
  const char* abi_id;         ///< ESPALIER_ABI_ID
  const char* name;
  const char* version;
  const char* licence;        ///< SPDX identifier
  const char* summary;        ///< one line
  const void* (*core_identity)();  ///< must return the host's: there is one core in the process
  const Factory* factories;
  std::size_t factory_count;
};

inline constexpr std::uint32_t kPluginMagic = 0x31505345;  // "ESP1"

/// An address inside libespalier_core.so: two cores in one process give two.
ESPALIER_API const void* core_identity();

/// Builds the table entry of a factory at compile time. `create` returns a new object; `destroy` deletes it in the same library.
template <class Interface, Interface* (*create)(const ConfigView&, HostContext&), void (*destroy)(Interface*) noexcept>
constexpr Factory factory(const char* name, const OptionSpec* options = nullptr, std::size_t option_count = 0) {
  static_assert(kKind<Interface> != nullptr, "not an interface of Espalier");
  return {kKind<Interface>,
          name,
          options,
          option_count,
          [](const ConfigView& config, HostContext& host) -> void* { return create(config, host); },
          [](void* object) noexcept { destroy(static_cast<Interface*>(object)); }};
}

/// The same for a class with a constructor (const ConfigView&, HostContext&).
template <class Interface, class Class>
constexpr Factory factory_of(const char* name, const OptionSpec* options = nullptr, std::size_t option_count = 0) {
  static_assert(kKind<Interface> != nullptr, "not an interface of Espalier");
  return {kKind<Interface>,
          name,
          options,
          option_count,
          [](const ConfigView& config, HostContext& host) -> void* {
            return static_cast<Interface*>(new Class(config, host));
          },
          [](void* object) noexcept { delete static_cast<Class*>(static_cast<Interface*>(object)); }};
}

}  // namespace espalier

/// Linked into a program (ESPALIER_STATIC_PLUGIN=<name>, set by espalier_add_plugin), the symbols carry the plugin's name, since
/// several descriptors sit in one program then.
#define ESPALIER_PLUGIN_PASTE_(a, b) a##_##b
#define ESPALIER_PLUGIN_PASTE(a, b) ESPALIER_PLUGIN_PASTE_(a, b)
#if defined(ESPALIER_STATIC_PLUGIN)
#define ESPALIER_PLUGIN_SYMBOL ESPALIER_PLUGIN_PASTE(espalier_plugin_v1, ESPALIER_STATIC_PLUGIN)
#define ESPALIER_PLUGIN_IDENTITY ESPALIER_PLUGIN_PASTE(espalier_plugin_identity, ESPALIER_STATIC_PLUGIN)
#else
#define ESPALIER_PLUGIN_SYMBOL espalier_plugin_v1
#define ESPALIER_PLUGIN_IDENTITY espalier_plugin_identity
#endif

/// Defines descriptor and identity section. `factories_` is a constinit array of espalier::Factory.
#define ESPALIER_PLUGIN(name_, version_, licence_, summary_, factories_)                                             \
  extern "C" {                                                                                                       \
  __attribute__((section("espalier_id"), used)) constinit const char ESPALIER_PLUGIN_IDENTITY[] =                    \
      "espalier-plugin\n" ESPALIER_ABI_ID "\n" name_ "\n" version_;                                                  \
  __attribute__((visibility("default"))) extern const ::espalier::PluginDescriptor ESPALIER_PLUGIN_SYMBOL;           \
  constinit const ::espalier::PluginDescriptor ESPALIER_PLUGIN_SYMBOL = {                                            \
      ::espalier::kPluginMagic,  sizeof(::espalier::PluginDescriptor),                                               \
      ESPALIER_ABI_MAJOR,        ESPALIER_ABI_MINOR,                                                                 \
      ESPALIER_ABI_ID,           name_,                                                                              \
      version_,                  licence_,                                                                           \
      summary_,                  &::espalier::core_identity,                                                         \
      factories_,                sizeof(factories_) / sizeof((factories_)[0])};                                      \
  }                                                                                                                  \
  static_assert(true, "needs a semicolon")
