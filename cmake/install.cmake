# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
# The C++ and C packages: headers, an archive, a shared library, find_package(farandole).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS farandole farandole_shared EXPORT farandole_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/farandole DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT farandole_targets NAMESPACE farandole:: FILE farandole-targets.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/farandole)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/farandole-config.cmake
  "include(CMakeFindDependencyMacro)\nfind_dependency(Threads)\n"
  "include(\${CMAKE_CURRENT_LIST_DIR}/farandole-targets.cmake)\n")
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/farandole-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/farandole-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/farandole-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/farandole)
