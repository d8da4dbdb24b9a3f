// The handshake: checks 2 to 8 of docs/plugin-guide.md, in this order, each with its own message.
#include <string>

#include "espalier/error.hpp"
#include "espalier/plugin_host.hpp"
#include "plugin/identity.hpp"
#include "plugin/library.hpp"

namespace espalier {

namespace {

// `plugin "name" (path)` or `plugin "name" (built in)`.
std::string plugin_title(std::string_view name, const std::filesystem::path& path) {
  return "plugin \"" + std::string(name) + "\" (" + (path.empty() ? "built in" : path.string()) + ")";
}

[[noreturn]] void refuse(std::string_view name, const std::filesystem::path& path, std::string_view check,
                         std::string_view why) {
  throw PluginError(plugin_title(name, path) + ": " + std::string(check) + ": " + std::string(why));
}

std::string describe_factories(const PluginDescriptor& descriptor) {
  std::string text;
  for (std::size_t i = 0; i < descriptor.factory_count; ++i) {
    const Factory& factory = descriptor.factories[i];
    text += (text.empty() ? "" : ", ") + std::string(factory.kind) + " \"" + factory.name + "\"";
  }
  return text.empty() ? "nothing" : text;
}

// Empty when every pointer that the host will follow is there.
std::string missing_part(const PluginDescriptor& descriptor) {
  if (descriptor.abi_id == nullptr || descriptor.name == nullptr || descriptor.version == nullptr ||
      descriptor.licence == nullptr || descriptor.summary == nullptr || descriptor.core_identity == nullptr) {
    return "a null member";
  }
  if (descriptor.factories == nullptr || descriptor.factory_count == 0) return "no factory";
  for (std::size_t i = 0; i < descriptor.factory_count; ++i) {
    const Factory& factory = descriptor.factories[i];
    if (factory.kind == nullptr || factory.name == nullptr || factory.create == nullptr || factory.destroy == nullptr ||
        (factory.options == nullptr && factory.option_count > 0)) {
      return "a null member in factory " + std::to_string(i);
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (std::string_view(factory.kind) == descriptor.factories[j].kind) {
        return "two factories of the kind " + std::string(factory.kind) + "; a recipe could not choose";
      }
    }
  }
  return "";
}

// Checks 4, 5, 6 and the name of check 7.
void check_descriptor(const PluginDescriptor& descriptor, std::string_view expected_name,
                      const std::filesystem::path& path) {
  // Layout comes first: nothing else in the descriptor may be believed before.
  if (descriptor.magic != kPluginMagic) {
    refuse(expected_name, path, "layout",
           "its descriptor does not start with the mark of one; define it with ESPALIER_PLUGIN");
  }
  if (descriptor.abi_major != ESPALIER_ABI_MAJOR) {
    refuse(expected_name, path, "layout",
           "it has plugin interface " + std::to_string(descriptor.abi_major) + "." +
               std::to_string(descriptor.abi_minor) + ", this core " + std::to_string(ESPALIER_ABI_MAJOR) + "." +
               std::to_string(ESPALIER_ABI_MINOR) + "; build it again with the headers of this core");
  }
  if (descriptor.struct_size < sizeof(PluginDescriptor)) {
    refuse(expected_name, path, "layout",
           "its descriptor has " + std::to_string(descriptor.struct_size) + " bytes, this core needs " +
               std::to_string(sizeof(PluginDescriptor)) + "; build it again with the headers of this core");
  }
  if (const std::string missing = missing_part(descriptor); !missing.empty()) {
    refuse(expected_name, path, "layout", "its descriptor has " + missing);
  }
  if (const std::string difference = build_difference(descriptor.abi_id); !difference.empty()) {
    refuse(expected_name, path, "build", difference);
  }
  if (descriptor.core_identity() != core_identity()) {
    refuse(expected_name, path, "core",
           "it brings a core of its own, so errors and types would not be the program's; link it with the shared "
           "Espalier::core, not with core sources or a static copy");
  }
  if (descriptor.name != expected_name) {
    refuse(
        expected_name, path, "identity",
        "its descriptor calls itself \"" + std::string(descriptor.name) + "\"; file, recipe and descriptor must agree");
  }
}

// Errors that a user can act on keep their class, and so their exit code; their own text stays in front, since it may
// start with a place in the recipe.
template <class Class>
[[noreturn]] void rethrow_named(const Class& error, const LoadedPlugin& plugin) {
  throw Class(std::string(error.what()) + " (" + plugin.title() + ": create)");
}

}  // namespace

std::unique_ptr<LoadedPlugin> load_plugin_file(const std::filesystem::path& path, std::string_view expected_name) {
  const auto attempt = [&](std::string_view check, auto&& action) {
    try {
      return action();
    } catch (const PluginError& error) {
      refuse(expected_name, path, check, error.what());
    }
  };
  const PluginIdentity identity = attempt("entry", [&] { return read_identity(path); });
  if (const std::string difference = build_difference(identity.abi_id); !difference.empty()) {
    refuse(expected_name, path, "build", difference);
  }
  if (identity.name != expected_name) {
    refuse(expected_name, path, "identity",
           "the file calls itself \"" + identity.name + "\"; file, recipe and descriptor must agree");
  }
  auto library = attempt("open", [&] { return open_library(path); });
  const PluginDescriptor* const descriptor = find_descriptor(*library);
  if (descriptor == nullptr) {
    refuse(expected_name, path, "entry",
           "is not an Espalier plugin: it does not export espalier_plugin_v1 (the macro ESPALIER_PLUGIN defines it, "
           "espalier_add_plugin exports it)");
  }
  check_descriptor(*descriptor, expected_name, path);
  return std::make_unique<LoadedPlugin>(*descriptor, path, std::move(library), hash_file(path));
}

std::unique_ptr<LoadedPlugin> load_builtin(const PluginDescriptor& descriptor) {
  check_descriptor(descriptor, descriptor.name != nullptr ? descriptor.name : "", {});
  return std::make_unique<LoadedPlugin>(descriptor, std::filesystem::path(), nullptr, 0);
}

std::string read_version(const std::filesystem::path& path) { return read_identity(path).version; }

LoadedPlugin::LoadedPlugin(const PluginDescriptor& descriptor, std::filesystem::path path,
                           std::shared_ptr<const Library> library, std::uint64_t content)
    : descriptor_(&descriptor), path_(std::move(path)), library_(std::move(library)), content_(content) {}

std::string LoadedPlugin::title() const { return plugin_title(name(), path_); }

const Factory& LoadedPlugin::factory(std::string_view kind) const {
  for (const Factory& factory : factories()) {
    if (kind == factory.kind) return factory;
  }
  refuse(name(), path_, "identity",
         "the recipe asks for a plugin of the kind " + std::string(kind) + ", it offers " +
             describe_factories(*descriptor_));
}

void* LoadedPlugin::create_object(const Factory& factory, const ConfigView& config, HostContext& host) const {
  std::string why;
  try {
    if (void* const object = factory.create(config, host); object != nullptr) return object;
    why = "its factory \"" + std::string(factory.name) + "\" made nothing";
  } catch (const ConfigError& error) {
    rethrow_named(error, *this);
  } catch (const IoError& error) {
    rethrow_named(error, *this);
  } catch (const DeviceError& error) {
    rethrow_named(error, *this);
  } catch (const CommError& error) {
    rethrow_named(error, *this);
  } catch (const NumericsError& error) {
    rethrow_named(error, *this);
  } catch (const Error& error) {
    // What the ranks agreed on while the object was made comes without its class, but with its code.
    const ExitCode code = error.exit_code();
    if (code != ExitCode::internal && code != ExitCode::plugin) {
      throw Error(code, std::string(error.what()) + " (" + title() + ": create)");
    }
    why = std::string(error.what()) + " [" + current_exception_type() + "]";
  } catch (const std::exception& error) {
    why = std::string(error.what()) + " [" + current_exception_type() + "]";
  } catch (...) {
    why = "it threw an exception of type " + current_exception_type() +
          ", which carries no text; plugins throw the errors of espalier/error.hpp";
  }
  throw PluginError(title() + ": create: " + why);
}

}  // namespace espalier
