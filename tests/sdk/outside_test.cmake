# cmake -DBUILD_DIR=... -DSOURCE_DIR=... -DWORK_DIR=... -DCXX=... -DCXX_FLAGS=... -DMPIEXEC=... [-DOTHER_CXX=...] -P outside_test.cmake
#
# Installs the build into a folder of its own and does what a third party does with it: builds the example plugins, the plugin of
# docs/plugin-guide.md and a host program, each a project outside the tree, and loads the plugins with the program; with OTHER_CXX,
# builds and loads the example with another compiler of the same C++ library too; and trains with the
# installed trainer and the example's optimizer.
cmake_policy(VERSION 3.25)

function(run title)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${title}: status ${status}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(must_contain text part)
  string(FIND "${text}" "${part}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "expected \"${part}\" in:\n${text}")
  endif()
endfunction()

# build(NAME SOURCE args...): configures and builds a project against the installed SDK.
function(build name source)
  run("configuring ${name}" "${CMAKE_COMMAND}" -S "${source}" -B "${WORK_DIR}/${name}" -G Ninja "-DCMAKE_CXX_COMPILER=${CXX}"
      "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}" "-DCMAKE_PREFIX_PATH=${prefix}" -DCMAKE_BUILD_TYPE=Release ${ARGN})
  run("building ${name}" "${CMAKE_COMMAND}" --build "${WORK_DIR}/${name}")
endfunction()

# Puts the first block of the given language after the given line of the guide into a file.
function(extract_block guide after language file)
  string(FIND "${guide}" "${after}" at)
  string(SUBSTRING "${guide}" ${at} -1 rest)
  string(FIND "${rest}" "```${language}\n" begin)
  if(at EQUAL -1 OR begin EQUAL -1)
    message(FATAL_ERROR "docs/plugin-guide.md has no ${language} block after \"${after}\"")
  endif()
  string(LENGTH "```${language}\n" mark)
  math(EXPR begin "${begin} + ${mark}")
  string(SUBSTRING "${rest}" ${begin} -1 rest)
  string(FIND "${rest}" "```" end)
  string(SUBSTRING "${rest}" 0 ${end} block)
  file(WRITE "${file}" "${block}")
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
set(prefix "${WORK_DIR}/install")
run("installing" "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${prefix}")

build(lion "${SOURCE_DIR}/examples/plugins/lion")
build(waves "${SOURCE_DIR}/examples/plugins/waves")
file(READ "${SOURCE_DIR}/docs/plugin-guide.md" guide)
extract_block("${guide}" "`src/plugin.cpp`:" cpp "${WORK_DIR}/guide_source/src/plugin.cpp")
extract_block("${guide}" "`CMakeLists.txt`:" cmake "${WORK_DIR}/guide_source/CMakeLists.txt")
build(guide "${WORK_DIR}/guide_source")
build(host "${SOURCE_DIR}/tests/sdk/outside" "-DPROBE_SOURCE=${SOURCE_DIR}/tests/sdk/probe.cpp")

run("loading the example" "${WORK_DIR}/host/probe" "${WORK_DIR}/lion/lib/espalier/plugins" optim_lion)
must_contain("${output}" "optim_lion 0.1.0")
run("loading the guide's plugin" "${WORK_DIR}/host/probe" "${WORK_DIR}/guide/lib/espalier/plugins" monitor_printer)
must_contain("${output}" "monitor_printer 0.1.0")
if(OTHER_CXX)
  set(CXX "${OTHER_CXX}")
  build(lion_other "${SOURCE_DIR}/examples/plugins/lion")
  run("loading the example of ${OTHER_CXX}" "${WORK_DIR}/host/probe" "${WORK_DIR}/lion_other/lib/espalier/plugins" optim_lion)
  must_contain("${output}" "optim_lion 0.1.0")
else()
  message("not run: the example built with another compiler (no clang++ here, or a sanitizer's run time differs)")
endif()
run("loading an installed plugin" "${WORK_DIR}/host/probe" "${prefix}/lib/espalier/plugins" optim_bf16)

# Where a plugin ends up when its own project is installed: in the tree of the trainer.
run("installing the example" "${CMAKE_COMMAND}" --install "${WORK_DIR}/lion" --prefix "${prefix}")
run("loading the installed example" "${WORK_DIR}/host/probe" "${prefix}/lib/espalier/plugins" optim_lion)

# With the installed trainer, as its user would: what the plugin is, and a run in which it learns.
set(ENV{ESPALIER_PLUGIN_PATH} "${WORK_DIR}/lion/lib/espalier/plugins")
run("inspecting the example" "${prefix}/bin/trainer" plugins inspect optim_lion)
must_contain("${output}" "Lion with BF16 weights and FP32 master weights")
must_contain("${output}" "beta2")
run("training with the example" "${prefix}/bin/trainer" train "${SOURCE_DIR}/tests/sdk/outside/lion.toml" --set
    "run.dir=${WORK_DIR}/run")
must_contain("${output}" "Lion, beta1 0.9")
file(STRINGS "${WORK_DIR}/run/metrics.jsonl" steps REGEX "\"kind\":\"step\"")
list(LENGTH steps count)
list(GET steps 0 first)
list(GET steps -1 last)
foreach(step IN ITEMS first last)
  string(REGEX MATCH "\"lm loss\":([0-9.]+)" matched "${${step}}")
  set(${step}_loss "${CMAKE_MATCH_1}")
endforeach()
if(NOT count EQUAL 40 OR NOT last_loss LESS 4.0 OR NOT first_loss GREATER 5.2)
  message(FATAL_ERROR "expected 40 steps from a loss above 5.2 to one below 4.0, found ${count} steps, ${first_loss} to ${last_loss}")
endif()

# A schedule from outside: its losses are those of the trainer's own, and its unsound variant is refused with the instruction.
set(ENV{ESPALIER_PLUGIN_PATH} "${WORK_DIR}/waves/lib/espalier/plugins")
foreach(plugin IN ITEMS pipeline_waves parallel_pipeline)
  run("training with ${plugin}" "${MPIEXEC}" -n 2 "${prefix}/bin/trainer" train "${SOURCE_DIR}/tests/sdk/outside/waves.toml" --set
      "run.dir=${WORK_DIR}/${plugin}" --set parallel.pipeline.plugin=${plugin})
  file(READ "${WORK_DIR}/${plugin}/metrics.jsonl" ${plugin}_steps)
  string(REGEX MATCHALL "\"lm loss\":[0-9.]+" ${plugin}_steps "${${plugin}_steps}")
endforeach()
list(LENGTH pipeline_waves_steps count)
if(NOT count EQUAL 3 OR NOT pipeline_waves_steps STREQUAL parallel_pipeline_steps)
  message(FATAL_ERROR "expected 3 equal losses, found ${pipeline_waves_steps} and ${parallel_pipeline_steps}")
endif()
set(unsound "${SOURCE_DIR}/tests/sdk/outside/waves.toml" --set "run.dir=${WORK_DIR}/unsound" --set parallel.pipeline.backward=descending)
foreach(program IN ITEMS train "config check")
  if(program STREQUAL train)
    set(command "${MPIEXEC}" -n 2 "${prefix}/bin/trainer" train ${unsound})
  else()
    set(command "${prefix}/bin/trainer" config check ${unsound} --world 2)
  endif()
  execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status EQUAL 0)
    message(FATAL_ERROR "${program} takes an unsound schedule:\n${output}")
  endif()
  must_contain("${output}" "is unsound: stage 0, instruction 9 (backward of micro-batch 3, chunk 0): gradients must be added in ascending order")
endforeach()
file(REMOVE_RECURSE "${WORK_DIR}")
