# Install rules, and a package that find_package(trireme) finds.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(trireme_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/trireme")

install(TARGETS trireme EXPORT trireme_targets FILE_SET HEADERS)
foreach(wing IN LISTS trireme_wings)
  # One export file per wing: the package loads a wing only when it is there and its dependency is found.
  install(TARGETS trireme_${wing} EXPORT trireme_${wing}_targets FILE_SET HEADERS)
  install(EXPORT trireme_${wing}_targets NAMESPACE trireme:: DESTINATION "${trireme_package_dir}"
          FILE trireme-${wing}-targets.cmake)
endforeach()
install(EXPORT trireme_targets NAMESPACE trireme:: DESTINATION "${trireme_package_dir}"
        FILE trireme-targets.cmake)

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/trireme-config.cmake.in"
  "${PROJECT_BINARY_DIR}/trireme-config.cmake" INSTALL_DESTINATION "${trireme_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/trireme-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/trireme-config.cmake" "${PROJECT_BINARY_DIR}/trireme-config-version.cmake"
        DESTINATION "${trireme_package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/trireme")
