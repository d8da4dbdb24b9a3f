# The installed SDK: find_package(Espalier) gives Espalier::core, Espalier::testing and espalier_add_plugin.
include(CMakePackageConfigHelpers)

set(package_dir lib/cmake/Espalier)
install(EXPORT EspalierTargets NAMESPACE Espalier:: DESTINATION ${package_dir})
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/EspalierConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/EspalierConfig.cmake" INSTALL_DESTINATION ${package_dir})
# Before 1.0 a change of the minor number may change the interfaces.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/EspalierConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/EspalierConfig.cmake"
        "${PROJECT_BINARY_DIR}/EspalierConfigVersion.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/EspalierPlugin.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/espalier_plugin.map"
        "${PROJECT_SOURCE_DIR}/cmake/check_exports.cmake"
  DESTINATION ${package_dir})
