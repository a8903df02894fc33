# cmake --install: bin/tutti, libexec/tutti/trainer (the same program under its name in the checkout), the library
# and its headers. One binary serves both places: it looks for libtutti.so beside itself, then where it is installed.
set_target_properties(tutti PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(
  TARGETS tutti
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET tutti_cuda)
  install(TARGETS tutti_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

if(TARGET trainer)
  file(RELATIVE_PATH libraries_from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(
    trainer PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON
                       INSTALL_RPATH "$ORIGIN;$ORIGIN/${libraries_from_program}")
  install(PROGRAMS $<TARGET_FILE:trainer> DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME tutti)

  # A link that holds wherever the prefix, or DESTDIR before it, comes to lie.
  set(alias_folder ${CMAKE_INSTALL_LIBEXECDIR}/tutti)
  file(RELATIVE_PATH program_from_alias /${alias_folder} /${CMAKE_INSTALL_BINDIR}/tutti)
  install(
    CODE "set(alias_folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${alias_folder}\")
          message(STATUS \"Installing: \${alias_folder}/trainer\")
          file(MAKE_DIRECTORY \"\${alias_folder}\")
          file(CREATE_LINK \"${program_from_alias}\" \"\${alias_folder}/trainer\" SYMBOLIC)")
endif()
