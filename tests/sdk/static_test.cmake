# cmake -DSOURCE_DIR=... -DWORK_DIR=... -DCXX=... -DBUILD_DIR=... -P static_test.cmake
#
# A trainer with its plugins linked in (ESPALIER_STATIC_PLUGINS): no library of a plugin is built, and a run is the same to the last digit
# as with those that are loaded.
cmake_policy(VERSION 3.25)

function(run title)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${title}: status ${status}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
run("configuring" "${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${WORK_DIR}/build" -G Ninja "-DCMAKE_CXX_COMPILER=${CXX}"
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DESPALIER_STATIC_PLUGINS=ON -DESPALIER_TESTS=OFF)
run("building" "${CMAKE_COMMAND}" --build "${WORK_DIR}/build" --target trainer)
file(GLOB libraries "${WORK_DIR}/build/lib/espalier/plugins/*.so")
if(libraries)
  message(FATAL_ERROR "plugins are there as libraries, too: ${libraries}")
endif()

foreach(kind IN ITEMS static loaded)
  set(build "${BUILD_DIR}")
  if(kind STREQUAL static)
    set(build "${WORK_DIR}/build")
  endif()
  run("training, ${kind}" "${build}/app/trainer" train "${SOURCE_DIR}/configs/bloom-twin.toml" --set parallel.tensor.size=1 --set
      parallel.pipeline.size=1 --set train.train_samples=64 --set train.lr_warmup_samples=8 --set "run.dir=${WORK_DIR}/${kind}")
  file(READ "${WORK_DIR}/${kind}/metrics.jsonl" records)
  string(REGEX MATCHALL "\"lm loss\":[0-9.]+" ${kind}_losses "${records}")
endforeach()
list(LENGTH static_losses count)
if(count LESS 3 OR NOT static_losses STREQUAL loaded_losses)
  message(FATAL_ERROR "expected equal losses, found ${static_losses} with linked plugins and ${loaded_losses} with loaded ones")
endif()
file(REMOVE_RECURSE "${WORK_DIR}")
