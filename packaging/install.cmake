# make install: library, plugins, headers, command, pkg-config file, CMake package, man pages.
include(CMakePackageConfigHelpers)

install(TARGETS lockstep EXPORT lockstep-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET lockstep_cpu)
    install(TARGETS lockstep_cpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
endif()
if(TARGET lockstep_command)
    install(TARGETS lockstep_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

configure_file(packaging/lockstep.pc.in lockstep.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(EXPORT lockstep-targets NAMESPACE lockstep:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
configure_package_config_file(packaging/lockstep-config.cmake.in lockstep-config.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
write_basic_package_version_file(lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/lockstep-config.cmake ${CMAKE_BINARY_DIR}/lockstep-config-version.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
