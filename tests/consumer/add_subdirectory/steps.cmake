# By default nothing of ours is installed, built or changed.
build_consumer("add_subdirectory" "${HERE}/add_subdirectory" "${OUT}/build" "-DTRIREME_SOURCE=${SOURCE}")
run("add_subdirectory: run" "${OUT}/build/uses_trireme")
message("${said}")
run("add_subdirectory: install" "${CMAKE_COMMAND}" --install "${OUT}/build" --prefix "${OUT}/prefix")
file(GLOB_RECURSE installed RELATIVE "${OUT}/prefix" "${OUT}/prefix/*")
if(NOT installed STREQUAL "bin/speaks_17")
  message(FATAL_ERROR "FAILED: the prefix holds more than the parent's files: ${installed}")
endif()

# With our install rules on, the parent may export what links to us, and a third project can use that.
build_consumer("parent that exports" "${HERE}/add_subdirectory" "${OUT}/build exports" "-DTRIREME_SOURCE=${SOURCE}"
               -DTRIREME_INSTALL=ON -DPARENT_EXPORTS=ON)
run("parent that exports: install" "${CMAKE_COMMAND}" --install "${OUT}/build exports" --prefix "${OUT}/prefix")
build_consumer("third project, unity build" "${HERE}/add_subdirectory/third" "${OUT}/third"
               "-DCMAKE_PREFIX_PATH=${OUT}/prefix")
run("third project: run" "${OUT}/third/third")
