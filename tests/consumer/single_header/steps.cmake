# A copy, so that nothing else of the repository is within reach.
file(COPY "${SOURCE}/single_include/trireme" DESTINATION "${OUT}/vendored")
string(REPLACE ";" "\\;" wings "${WINGS}")
build_consumer("single header" "${HERE}/single_header" "${OUT}/build" "-DSINGLE=${OUT}/vendored" "-DWINGS=${wings}")
run("single header: run" "${OUT}/build/uses_trireme")
message("${said}")
