# Helpers for tests. Every test carries exactly one of the labels fast and long, and may carry topics (unit, parity, ranks, sdk, ...).
#
# espalier_add_test(NAME SOURCES file... [LIBRARIES target...] [LABELS fast|long topic...] [TIMEOUT seconds]
#                   [ENVIRONMENT VAR=value...] [NEEDS target...])
#   One GoogleTest program, one ctest entry. Default labels: fast, and the name of the folder below tests/.
# espalier_add_mpi_test(NAME RANKS n... SOURCES file... [the same options])
#   One program, for each n an entry NAME.np<n> that runs mpiexec -n <n>. See support/mpi_test.hpp.
# espalier_add_script_test(NAME COMMAND command... [LABELS ...] [TIMEOUT seconds] [ENVIRONMENT ...] [WORKING_DIRECTORY dir])
#
# espalier_add_job_test(NAME SOURCES file... [the options of espalier_add_test])
#   Starts the trainer itself, alone and under mpiexec, with support/trainer_job.hpp; loads the plugins of tests/faults, too.
#
# The programs see ESPALIER_FIXTURES_DIR, ESPALIER_SOURCE_DIR, ESPALIER_PLUGIN_DIR and TRAINER_EXE, each a string literal; those that start the
# trainer or load plugins name them in NEEDS, so that building the one test builds what it needs.
include_guard(GLOBAL)

find_package(GTest REQUIRED)

function(_espalier_test_labels out name)
  set(labels ${ARGN})
  if(NOT labels)
    set(labels fast)
  endif()
  set(sizes ${labels})
  list(FILTER sizes INCLUDE REGEX "^(fast|long)$")
  list(LENGTH sizes count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "test ${name}: LABELS needs exactly one of fast and long, found \"${labels}\"")
  endif()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/tests" OUTPUT_VARIABLE folder)
  string(REGEX MATCH "^[a-z_]+" topic "${folder}")
  if(topic)
    list(APPEND labels ${topic})
  endif()
  list(REMOVE_DUPLICATES labels)
  set(${out} "${labels}" PARENT_SCOPE)
endfunction()

function(_espalier_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;NEEDS")
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "test ${name}: no SOURCES")
  endif()
  add_executable(${name} ${arg_SOURCES})
  espalier_target(${name})
  # A third of the time of compiling tests goes into what -O2 does beyond -O1, and what they test is compiled elsewhere.
  target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_compile_definitions(
    ${name}
    PRIVATE ESPALIER_FIXTURES_DIR="${PROJECT_SOURCE_DIR}/tests/fixtures"
            ESPALIER_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
            ESPALIER_PLUGIN_DIR="${PROJECT_BINARY_DIR}/lib/espalier/plugins"
            TRAINER_EXE="${PROJECT_BINARY_DIR}/app/trainer")
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} espalier_core GTest::gmock GTest::gtest)
  # In the test of a single target too: what it starts or loads is built first. Checked late, since tests may come before their targets.
  if(arg_NEEDS)
    cmake_language(EVAL CODE "cmake_language(DEFER DIRECTORY \"${PROJECT_SOURCE_DIR}\" CALL add_dependencies ${name} ${arg_NEEDS})")
  endif()
endfunction()

function(espalier_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS;ENVIRONMENT;NEEDS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "espalier_add_test(${name}): unknown arguments \"${arg_UNPARSED_ARGUMENTS}\"")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  _espalier_test_labels(labels ${name} ${arg_LABELS})
  _espalier_test_program(${name} SOURCES ${arg_SOURCES} LIBRARIES ${arg_LIBRARIES} espalier_unit_main NEEDS ${arg_NEEDS})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

function(espalier_add_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "RANKS;SOURCES;LIBRARIES;LABELS;ENVIRONMENT;NEEDS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_RANKS)
    message(FATAL_ERROR "espalier_add_mpi_test(${name}): expected RANKS n... SOURCES file..., found \"${arg_UNPARSED_ARGUMENTS}\"")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  _espalier_test_labels(labels ${name} ${arg_LABELS})
  _espalier_test_program(${name} SOURCES ${arg_SOURCES} LIBRARIES ${arg_LIBRARIES} espalier_mpi_main NEEDS ${arg_NEEDS})
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}.np${ranks} COMMAND "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} ${ranks} "$<TARGET_FILE:${name}>")
    # mpiexec's own limit comes first: it ends all ranks and says so, where ctest would kill mpiexec alone.
    math(EXPR limit "${arg_TIMEOUT} - ${arg_TIMEOUT} / 20 - 1")
    set(environment "ESPALIER_EXPECT_RANKS=${ranks}" "MPIEXEC_TIMEOUT=${limit}")
    set(processors 1)
    if(ranks GREATER 1)
      list(APPEND environment OMP_NUM_THREADS=1)
      set(processors 2)
    endif()
    set_tests_properties(
      ${name}.np${ranks} PROPERTIES LABELS "${labels}" TIMEOUT ${arg_TIMEOUT} PROCESSORS ${processors} ENVIRONMENT
                                                                      "${environment};${arg_ENVIRONMENT}")
  endforeach()
endfunction()

function(espalier_add_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;WORKING_DIRECTORY" "COMMAND;LABELS;ENVIRONMENT")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_COMMAND)
    message(FATAL_ERROR "espalier_add_script_test(${name}): expected COMMAND command..., found \"${arg_UNPARSED_ARGUMENTS}\"")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_WORKING_DIRECTORY)
    set(arg_WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  endif()
  _espalier_test_labels(labels ${name} ${arg_LABELS})
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${arg_WORKING_DIRECTORY}")
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

function(espalier_add_job_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS;ENVIRONMENT;NEEDS")
  espalier_add_test(
    ${name}
    SOURCES ${arg_SOURCES}
    LIBRARIES ${arg_LIBRARIES} espalier_trainer_job
    LABELS ${arg_LABELS}
    ENVIRONMENT ${arg_ENVIRONMENT}
    TIMEOUT ${arg_TIMEOUT}
    NEEDS trainer faults parallel_zero optim_fp32 optim_bf16 optim_fp16 kernels_fused data_indexed ${arg_NEEDS})
  target_compile_definitions(${name} PRIVATE FAULTS_DIR="${PROJECT_BINARY_DIR}/tests/faults/plugins")
  set_tests_properties(${name} PROPERTIES PROCESSORS 2)
endfunction()
