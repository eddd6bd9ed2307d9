# libtowers.so: the program's parts behind one header, with the symbols of symbols.map; its pkg-config file and CMake package.
set(library_folder ${CMAKE_SOURCE_DIR}/inception/library)
add_library(towers_shared SHARED ${library_folder}/towers.c)
set_target_properties(towers_shared PROPERTIES OUTPUT_NAME towers EXPORT_NAME towers VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${library_folder}/symbols.map)
target_link_options(towers_shared PRIVATE LINKER:--version-script=${library_folder}/symbols.map LINKER:--as-needed)
target_link_libraries(towers_shared PRIVATE towers_lib)
target_include_directories(towers_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

include(CMakePackageConfigHelpers)
file(RELATIVE_PATH to_root /${CMAKE_INSTALL_LIBDIR}/pkgconfig /) # the folder may be moved
set(to_library) # outside of the system's own folders programs find the library without ldconfig
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(to_library " -Wl,-rpath,\${libdir}")
endif()
configure_file(${CMAKE_SOURCE_DIR}/cmake/towers.pc.in ${CMAKE_BINARY_DIR}/generated/towers.pc @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/towers-config-version.cmake COMPATIBILITY SameMajorVersion)
install(TARGETS towers_shared EXPORT towers LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${library_folder}/towers.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/generated/towers.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(EXPORT towers NAMESPACE towers:: FILE towers-config.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/towers)
install(FILES ${CMAKE_BINARY_DIR}/generated/towers-config-version.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/towers)
