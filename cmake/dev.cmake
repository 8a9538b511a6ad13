# What our own tests, examples and benchmarks are compiled with. Users link trireme::trireme and inherit none of it.

add_library(trireme_dev INTERFACE)
target_link_libraries(trireme_dev INTERFACE trireme)
target_compile_options(trireme_dev INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wnon-virtual-dtor
  -Woverloaded-virtual -Wundef
  $<$<BOOL:${TRIREME_WERROR}>:-Werror>
  # g++ warns that std::hardware_destructive_interference_size may differ between builds; nothing of ours uses it.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-interference-size>)

# For programs whose speed is looked at; the library itself never asks for a CPU.
add_library(trireme_fast INTERFACE)
target_compile_options(trireme_fast INTERFACE $<$<BOOL:${TRIREME_NATIVE}>:-march=native
  # g++ 12 takes its own AVX-512 intrinsics for uninitialised variables (GCC bug 105593).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>>)

# trireme_program(prefix file): one example or benchmark. What it needs is read from its include lines; when that is
# not on this machine the program is left out.
function(trireme_program prefix file)
  cmake_path(GET file STEM name)
  set(target "${prefix}${name}")
  set(path "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  # Headers beside the program, included in quotes, may be what needs something.
  file(GLOB beside CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.hpp" "${PROJECT_SOURCE_DIR}/examples/*.hpp")
  file(STRINGS "${path}" includes REGEX "^#include ")
  foreach(header IN LISTS beside)
    cmake_path(GET header FILENAME header_name)
    if(includes MATCHES "[\"/]${header_name}\"")
      file(STRINGS "${header}" more REGEX "^#include ")
      list(APPEND includes "${more}")
    endif()
  endforeach()

  set(needs "")
  foreach(wing_and_target "<Eigen/=Eigen3::Eigen" "<trireme/zlib=trireme::zlib")
    string(REPLACE "=" ";" pair "${wing_and_target}")
    list(GET pair 0 sign)
    list(GET pair 1 needed)
    string(FIND "${includes}" "${sign}" at)
    if(at GREATER -1)
      if(NOT TARGET ${needed})
        message(STATUS "${target} left out: ${needed} is not there")
        return()
      endif()
      list(APPEND needs ${needed})
    endif()
  endforeach()

  add_executable(${target} "${file}")
  target_link_libraries(${target} PRIVATE trireme_dev trireme_fast ${needs})
endfunction()
