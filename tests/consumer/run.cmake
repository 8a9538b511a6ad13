# One consumer project, from nothing: KIND = find_package | add_subdirectory | single_header.
# SOURCE is this repository, OUT a folder to work in (its name has a blank), COMPILER and GENERATOR as in the build
# that calls, WINGS the wings that this machine can have.

cmake_minimum_required(VERSION 3.23)

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 0)
    message("${text}")
    message(FATAL_ERROR "FAILED: ${what} (status ${status})")
  endif()
  message("ok: ${what}")
  set(said "${text}" PARENT_SCOPE)
endfunction()

function(must_exist)
  foreach(path IN LISTS ARGN)
    if(NOT EXISTS "${path}")
      message(FATAL_ERROR "FAILED: ${path} is not there")
    endif()
  endforeach()
endfunction()

# Configures, builds and runs the consumer in FOLDER; further arguments go to the configure step.
function(build_consumer what folder build)
  run("${what}: configure" "${CMAKE_COMMAND}" -S "${folder}" -B "${build}" -G "${GENERATOR}"
      "-DCMAKE_CXX_COMPILER=${COMPILER}" ${ARGN})
  set(said "${said}" PARENT_SCOPE)
  run("${what}: build" "${CMAKE_COMMAND}" --build "${build}")
endfunction()

set(HERE "${CMAKE_CURRENT_LIST_DIR}")
file(REMOVE_RECURSE "${OUT}")
file(MAKE_DIRECTORY "${OUT}")
include("${HERE}/${KIND}/steps.cmake")
