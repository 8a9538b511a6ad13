# Installs into an empty prefix, moves the prefix, and uses it from there.

run("configure" "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${OUT}/trireme" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" -DTRIREME_TESTS=OFF -DTRIREME_EXAMPLES=OFF -DTRIREME_BENCH=OFF)
run("install" "${CMAKE_COMMAND}" --install "${OUT}/trireme" --prefix "${OUT}/first prefix")
file(RENAME "${OUT}/first prefix" "${OUT}/prefix")

include("${SOURCE}/cmake/headers.cmake")
foreach(header IN LISTS TRIREME_HEADERS)
  must_exist("${OUT}/prefix/include/${header}")
endforeach()
must_exist("${OUT}/prefix/share/licenses/trireme/LICENSE")
file(GLOB_RECURSE installed "${OUT}/prefix/*.cmake")
foreach(file IN LISTS installed)
  file(READ "${file}" text)
  if(text MATCHES "first prefix|${SOURCE}")
    message(FATAL_ERROR "FAILED: ${file} names a folder of the build machine")
  endif()
endforeach()

# A list on a command line keeps its semicolons only when they are quoted all the way.
string(REPLACE ";" "\\;" wings "${WINGS}")
build_consumer("find_package" "${HERE}/find_package" "${OUT}/build" "-DCMAKE_PREFIX_PATH=${OUT}/prefix"
               "-DWINGS=${wings}")
run("find_package: run" "${OUT}/build/uses_trireme")
message("${said}")
