# The program prints the manual page and the shells' completion under the name of its installation. LD_LIBRARY_PATH
# names the folder of its library, since it may have been linked without an rpath.
set(documents ${PROJECT_BINARY_DIR}/documents)
set(print ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}:$ENV{LD_LIBRARY_PATH}
        ./tutti)
file(GLOB_RECURSE companions CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/companions/*)
list(FILTER companions EXCLUDE REGEX __pycache__)
set(pack ${TUTTI_GZIP} --best --no-name --force)
file(MAKE_DIRECTORY ${documents})
file(CREATE_LINK ../trainer ${documents}/tutti SYMBOLIC)

add_custom_command(
  OUTPUT ${documents}/tutti.1.gz ${documents}/tutti.bash ${documents}/_tutti ${documents}/tutti.fish
  COMMAND ${print} --man-page > tutti.1
  COMMAND ${pack} tutti.1
  COMMAND ${print} --completion bash > tutti.bash
  COMMAND ${print} --completion zsh > _tutti
  COMMAND ${print} --completion fish > tutti.fish
  DEPENDS trainer tutti ${companions}
  WORKING_DIRECTORY ${documents}
  COMMENT "Manual page and completion"
  VERBATIM)
add_custom_command(
  OUTPUT ${documents}/changelog.gz
  COMMAND ${pack} --stdout ${PROJECT_SOURCE_DIR}/CHANGELOG.md > changelog.gz
  DEPENDS ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  WORKING_DIRECTORY ${documents}
  VERBATIM)
add_custom_target(documents ALL DEPENDS ${documents}/tutti.1.gz ${documents}/changelog.gz)

set(shares ${CMAKE_INSTALL_DATAROOTDIR})
install(FILES ${documents}/tutti.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${documents}/changelog.gz DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(FILES ${documents}/tutti.bash DESTINATION ${shares}/bash-completion/completions RENAME tutti COMPONENT program)
install(FILES ${documents}/_tutti DESTINATION ${shares}/zsh/site-functions COMPONENT program)
install(FILES ${documents}/tutti.fish DESTINATION ${shares}/fish/vendor_completions.d COMPONENT program)
