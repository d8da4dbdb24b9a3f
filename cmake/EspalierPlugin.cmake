# espalier_add_plugin(NAME SOURCES file... [LIBRARIES library...] [OUTPUT_DIRECTORY dir] [NO_INSTALL])
#
# Builds lib<NAME>.so, a plugin that the trainer loads: hidden visibility, exactly one exported symbol (espalier_plugin_v1), no
# undefined symbols, never unloaded. Works in the tree of Espalier and after find_package(Espalier). Targets:
#   <NAME>_impl  static library of every source but plugin.cpp (the descriptor), for unit tests; its folder src/ is on the include path
#   <NAME>       the plugin itself; with ESPALIER_STATIC_PLUGINS=ON an additional <NAME>_static carries the descriptor under
#                the name espalier_plugin_v1_<NAME> (global property ESPALIER_STATIC_PLUGIN_NAMES lists them)
# The plugin goes to <build>/lib/espalier/plugins unless OUTPUT_DIRECTORY says otherwise, and installs to lib/espalier/plugins unless
# NO_INSTALL does (plugins that tests load).
include_guard(GLOBAL)

set(ESPALIER_PLUGIN_MODULE_DIR "${CMAKE_CURRENT_LIST_DIR}")

function(espalier_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_INSTALL" "OUTPUT_DIRECTORY" "SOURCES;LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "espalier_add_plugin(${name}): expected SOURCES file... [LIBRARIES library...], "
                        "found \"${arg_UNPARSED_ARGUMENTS}\"")
  endif()
  if(NOT name MATCHES "^[a-z][a-z0-9_]*$")
    message(FATAL_ERROR "espalier_add_plugin(${name}): a plugin's name is lower-case letters, digits and _")
  endif()

  set(descriptor ${arg_SOURCES})
  list(FILTER descriptor INCLUDE REGEX "(^|/)plugin\\.cpp$")
  set(body ${arg_SOURCES})
  list(FILTER body EXCLUDE REGEX "(^|/)plugin\\.cpp$")
  if(NOT descriptor)
    message(FATAL_ERROR "espalier_add_plugin(${name}): no plugin.cpp among the sources; it holds ESPALIER_PLUGIN(...)")
  endif()

  if(body)
    add_library(${name}_impl STATIC ${body})
    set(scope PUBLIC)
    _espalier_plugin_part(${name}_impl)
    target_link_libraries(${name}_impl PRIVATE ${arg_LIBRARIES})
  else()
    add_library(${name}_impl INTERFACE)
    set(scope INTERFACE)
    target_link_libraries(${name}_impl INTERFACE ${arg_LIBRARIES})
  endif()
  target_link_libraries(${name}_impl ${scope} Espalier::core)
  target_include_directories(${name}_impl ${scope} "${CMAKE_CURRENT_SOURCE_DIR}/src")

  add_library(${name} MODULE ${descriptor})
  _espalier_plugin_part(${name})
  target_link_libraries(${name} PRIVATE ${name}_impl Espalier::core)
  set(export_map "${ESPALIER_PLUGIN_MODULE_DIR}/espalier_plugin.map")
  target_link_options(${name} PRIVATE "-Wl,--version-script=${export_map}" -Wl,-z,defs -Wl,-z,nodelete)
  set(layout_dir "${CMAKE_BINARY_DIR}/lib/espalier/plugins")
  if(NOT arg_OUTPUT_DIRECTORY)
    set(arg_OUTPUT_DIRECTORY "${layout_dir}")
  endif()
  set_target_properties(
    ${name}
    PROPERTIES PREFIX lib
               SUFFIX .so
               LIBRARY_OUTPUT_DIRECTORY "${arg_OUTPUT_DIRECTORY}"
               INSTALL_RPATH "\$ORIGIN/../.."
               LINK_DEPENDS "${export_map}")
  if(COMMAND espalier_target AND arg_OUTPUT_DIRECTORY STREQUAL layout_dir)
    # In the tree of Espalier core lies where it will lie when installed.
    set_target_properties(${name} PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
  endif()
  if(NOT arg_NO_INSTALL)
    install(TARGETS ${name} LIBRARY DESTINATION lib/espalier/plugins)
  endif()

  if(ESPALIER_STATIC_PLUGINS)
    add_library(${name}_static STATIC ${descriptor})
    _espalier_plugin_part(${name}_static)
    target_compile_definitions(${name}_static PRIVATE ESPALIER_STATIC_PLUGIN=${name})
    target_link_libraries(${name}_static PUBLIC ${name}_impl Espalier::core)
    set_property(GLOBAL APPEND PROPERTY ESPALIER_STATIC_PLUGIN_NAMES ${name})
  endif()

  add_test(NAME sdk.exports.${name}
           COMMAND "${CMAKE_COMMAND}" "-DNM=${CMAKE_NM}" "-DLIBRARY=$<TARGET_FILE:${name}>" -P
                   "${ESPALIER_PLUGIN_MODULE_DIR}/check_exports.cmake")
  set_tests_properties(sdk.exports.${name} PROPERTIES LABELS "fast;sdk" TIMEOUT 60)
endfunction()

# espalier_link_plugins(PROGRAM): links every plugin added so far into a program (ESPALIER_STATIC_PLUGINS), whose source finds their
# descriptors as kLinkedIn in the header ESPALIER_LINKED_IN.
function(espalier_link_plugins program)
  get_property(names GLOBAL PROPERTY ESPALIER_STATIC_PLUGIN_NAMES)
  set(declarations "")
  set(entries "")
  foreach(name IN LISTS names)
    string(APPEND declarations "extern \"C\" const espalier::PluginDescriptor espalier_plugin_v1_${name};\n")
    string(APPEND entries "    &espalier_plugin_v1_${name},\n")
    target_link_libraries(${program} PRIVATE ${name}_static)
  endforeach()
  set(header "${CMAKE_BINARY_DIR}/linked_in/espalier_linked_in.hpp")
  file(CONFIGURE OUTPUT "${header}" @ONLY CONTENT
"#pragma once

#include \"espalier/plugin.hpp\"

@declarations@
inline constexpr const espalier::PluginDescriptor* kLinkedIn[] = {
@entries@};
")
  target_include_directories(${program} PRIVATE "${CMAKE_BINARY_DIR}/linked_in")
  target_compile_definitions(${program} PRIVATE "ESPALIER_LINKED_IN=<espalier_linked_in.hpp>")
endfunction()

# Compile settings shared by the parts of a plugin.
function(_espalier_plugin_part target)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                                             POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  if(COMMAND espalier_target)
    espalier_target(${target})
  endif()
endfunction()
