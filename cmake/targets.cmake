# The library's targets. Everything is an INTERFACE library: headers, what they need, and nothing else.

find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED)

set(trireme_header_paths ${TRIREME_HEADERS})
list(TRANSFORM trireme_header_paths PREPEND "${PROJECT_SOURCE_DIR}/include/")
set(trireme_zlib_header_paths ${TRIREME_ZLIB_HEADERS})
list(TRANSFORM trireme_zlib_header_paths PREPEND "${PROJECT_SOURCE_DIR}/include/")

add_library(trireme INTERFACE)
add_library(trireme::trireme ALIAS trireme)
target_sources(trireme INTERFACE
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${trireme_header_paths})
target_compile_features(trireme INTERFACE cxx_std_20)
# Boost::headers is imported, so its folder reaches every compiler as -isystem.
target_link_libraries(trireme INTERFACE Threads::Threads Boost::headers)
# `all_verify_interface_header_sets` compiles every header alone; it is not part of `all`.
set_target_properties(trireme PROPERTIES VERIFY_INTERFACE_HEADER_SETS "${PROJECT_IS_TOP_LEVEL}")

set(trireme_wings "")

# zlib: byte sources that read gzip.
if(TRIREME_ZLIB STREQUAL "AUTO")
  find_package(ZLIB QUIET)
elseif(TRIREME_ZLIB)
  find_package(ZLIB REQUIRED)
endif()
if(TRIREME_ZLIB AND ZLIB_FOUND AND TRIREME_ZLIB_HEADERS)
  add_library(trireme_zlib INTERFACE)
  add_library(trireme::zlib ALIAS trireme_zlib)
  target_sources(trireme_zlib INTERFACE
    FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${trireme_zlib_header_paths})
  target_link_libraries(trireme_zlib INTERFACE trireme ZLIB::ZLIB)
  set_target_properties(trireme_zlib PROPERTIES
    EXPORT_NAME zlib
    VERIFY_INTERFACE_HEADER_SETS "${PROJECT_IS_TOP_LEVEL}")
  list(APPEND trireme_wings zlib)
endif()

if(PROJECT_IS_TOP_LEVEL)
  list(LENGTH TRIREME_HEADERS trireme_header_count)
  list(JOIN trireme_wings " " trireme_wings_text)
  message(STATUS "trireme ${PROJECT_VERSION}: ${trireme_header_count} headers, wings: "
                 "[${trireme_wings_text}]")
endif()
