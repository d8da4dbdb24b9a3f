# What every target of this tree shares: build type, compiler cache, warnings, sanitizers, MPI.
include_guard(GLOBAL)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

# Line tables are what a backtrace needs; full debug information costs a fifth of the build time (use Debug for it).
if(CMAKE_CXX_FLAGS_RELWITHDEBINFO STREQUAL "-O2 -g -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG" CACHE STRING "Flags of RelWithDebInfo" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# The build tree may be moved or copied; the layout is the one of the install tree.
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

# ccache, with paths relative to the checkout, so that a second checkout finds the objects of the first.
find_program(ESPALIER_CCACHE ccache)
find_program(ESPALIER_ENV env)
mark_as_advanced(ESPALIER_CCACHE ESPALIER_ENV)
if(ESPALIER_CCACHE AND ESPALIER_ENV)
  foreach(language C CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER "${ESPALIER_ENV}" "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
                                              "CCACHE_NOHASHDIR=1" "${ESPALIER_CCACHE}")
    endif()
  endforeach()
endif()

# A sanitizer must see the whole process, so it is the one flag that is not per target.
if(ESPALIER_SANITIZE)
  add_compile_options(-fsanitize=${ESPALIER_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ESPALIER_SANITIZE})
  # GCC's manual: instrumentation hides from this warning that a value is set.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  if(ESPALIER_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# Debian keeps several MPI libraries side by side; MPICH is the one that is tested.
if(NOT DEFINED MPI_EXECUTABLE_SUFFIX)
  find_program(ESPALIER_MPICC_MPICH mpicc.mpich)
  mark_as_advanced(ESPALIER_MPICC_MPICH)
  if(ESPALIER_MPICC_MPICH)
    set(MPI_EXECUTABLE_SUFFIX .mpich)
  endif()
endif()
find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)

add_library(espalier_warnings INTERFACE)
target_compile_options(
  espalier_warnings
  INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall
            -Wextra
            -Wpedantic
            -Wshadow
            -Wnon-virtual-dtor
            -Woverloaded-virtual
            -Wvla>
            # GCC 12 at -O3 sees overlaps in std::string's operator+ that cannot be (GCC bug 105651).
            $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
            $<$<AND:$<BOOL:${ESPALIER_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>)

# espalier_target(TARGET): warnings and hidden visibility for a target of this tree. The helpers for plugins and tests call it.
function(espalier_target target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:espalier_warnings>)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON ESPALIER_TARGET ON)
endfunction()

# espalier_program(TARGET): a program that users run. Installed to bin/, it finds core in ../lib, as it does in the build tree.
function(espalier_program target)
  espalier_target(${target})
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "\$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS ${target} RUNTIME DESTINATION bin)
endfunction()

# Refuses a target that forgot espalier_target: it would be compiled without warnings.
function(espalier_check_targets directory)
  get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(done ${target} ESPALIER_TARGET)
    if(type MATCHES "EXECUTABLE|STATIC|SHARED|MODULE|OBJECT" AND NOT done)
      message(SEND_ERROR "${directory}: add espalier_target(${target}) after the target")
    endif()
  endforeach()
  get_property(subdirectories DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  foreach(subdirectory IN LISTS subdirectories)
    espalier_check_targets("${subdirectory}")
  endforeach()
endfunction()
