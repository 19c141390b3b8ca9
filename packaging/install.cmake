# make install: library, plugins, headers, command, pkg-config file, CMake package, man pages.
include(CMakePackageConfigHelpers)

# The command and the plugins find the library from where they lie, in any prefix.
file(RELATIVE_PATH LS_BIN_TO_LIB /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})

install(TARGETS lockstep EXPORT lockstep-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(plugin lockstep_cpu lockstep_cuda lockstep_sim lockstep_gloo lockstep_mpi)
    if(TARGET ${plugin})
        set_target_properties(${plugin} PROPERTIES INSTALL_RPATH "$ORIGIN/..")
        install(TARGETS ${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
    endif()
endforeach()
if(TARGET lockstep_command)
    set_target_properties(lockstep_command PROPERTIES INSTALL_RPATH "$ORIGIN/${LS_BIN_TO_LIB}")
    install(TARGETS lockstep_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    install(FILES src/launch/python/sitecustomize.py DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep/lockstep_python)
endif()
install(DIRECTORY include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# Written when it is installed: only then the prefix is known (cmake --install --prefix).
foreach(name CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR PROJECT_VERSION PROJECT_DESCRIPTION)
    install(CODE "set(${name} \"${${name}}\")")
endforeach()
install(CODE "configure_file(\"${CMAKE_SOURCE_DIR}/packaging/lockstep.pc.in\" \"${CMAKE_BINARY_DIR}/lockstep.pc\" @ONLY)")
install(FILES ${CMAKE_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(EXPORT lockstep-targets NAMESPACE lockstep:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
configure_package_config_file(packaging/lockstep-config.cmake.in lockstep-config.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
write_basic_package_version_file(lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/lockstep-config.cmake ${CMAKE_BINARY_DIR}/lockstep-config-version.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# Manual pages: flags come from the option table.
find_program(SCDOC scdoc)
file(GLOB LS_MAN_PAGES CONFIGURE_DEPENDS packaging/man/*.scd)
if(SCDOC)
    add_executable(fill_flags packaging/man/fill_flags.c)
    target_include_directories(fill_flags PRIVATE src)
    target_link_libraries(fill_flags PRIVATE lockstep PkgConfig::JANSSON)
    set(LS_MAN_OUTPUTS)
    foreach(page IN LISTS LS_MAN_PAGES)
        cmake_path(GET page STEM LAST_ONLY name) # lockstep.1
        set(output ${CMAKE_BINARY_DIR}/man/${name})
        add_custom_command(OUTPUT ${output}
            COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/man
            COMMAND fill_flags ${page} > ${output}.scd
            COMMAND ${SCDOC} < ${output}.scd > ${output}
            DEPENDS ${page} fill_flags VERBATIM)
        list(APPEND LS_MAN_OUTPUTS ${output})
    endforeach()
    add_custom_target(man ALL DEPENDS ${LS_MAN_OUTPUTS})
    install(FILES ${LS_MAN_OUTPUTS} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
else()
    message(STATUS "scdoc not found: no manual pages")
endif()
