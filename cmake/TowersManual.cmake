# What is installed beside the program: README, pages and examples; manual page and shell completions, which it writes about itself
# when it is built.
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN *.json EXCLUDE PATTERN decisions EXCLUDE)

if(CMAKE_CROSSCOMPILING)
  message(STATUS "cross compiling: manual page and completions are left out (towers man, towers completion write them)")
  return()
endif()
set(manual_folder ${CMAKE_BINARY_DIR}/manual)
file(MAKE_DIRECTORY ${manual_folder})
set(manual_files)
function(towers_writes file)
  add_custom_command(OUTPUT ${manual_folder}/${file}
    COMMAND towers ${ARGN} > ${manual_folder}/${file}
    DEPENDS towers VERBATIM)
  set(manual_files ${manual_files} ${manual_folder}/${file} PARENT_SCOPE)
endfunction()
towers_writes(towers.1 man)
towers_writes(towers completion bash)
towers_writes(_towers completion zsh)
towers_writes(towers.fish completion fish)
add_custom_target(manual ALL DEPENDS ${manual_files})
install(FILES ${manual_folder}/towers.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${manual_folder}/towers DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${manual_folder}/_towers DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${manual_folder}/towers.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
