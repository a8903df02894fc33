# cmake --install, in three components: `program` is what runs (bin/tutti; libexec/tutti/trainer, the same under its
# name in the checkout; tutti-export and tutti-plot; the libraries; jobs, documents, manual page and completion),
# `development` has everything that other programs need to build against it, and `module` is the module file.
include(CMakePackageConfigHelpers)

# One binary serves both places: it looks for libtutti.so in its own folder, then where it is installed.
set_target_properties(tutti PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON EXPORT_NAME tutti)
install(
  TARGETS tutti
  EXPORT tuttiTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT program NAMELINK_COMPONENT development
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
if(TARGET tutti_cuda)
  install(TARGETS tutti_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT program)
endif()

# find_package(tutti) works with any prefix. Below 1.0 each minor version may break programs.
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION ${package_folder} COMPONENT development)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tuttiConfig.cmake.in ${PROJECT_BINARY_DIR}/tuttiConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tuttiConfig.cmake ${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT development)

file(RELATIVE_PATH libraries_from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(
  trainer PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON
                     INSTALL_RPATH "$ORIGIN;$ORIGIN/${libraries_from_program}")
install(PROGRAMS $<TARGET_FILE:trainer> DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME tutti COMPONENT program)
if(CMAKE_STRIP) # as it is done to targets by itself, which cannot be renamed
  install(CODE "if(CMAKE_INSTALL_DO_STRIP)
  set(program_folder \"${CMAKE_INSTALL_BINDIR}\")
  cmake_path(ABSOLUTE_PATH program_folder BASE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}\")
  execute_process(COMMAND \"${CMAKE_STRIP}\" \"\$ENV{DESTDIR}\${program_folder}/tutti\" COMMAND_ERROR_IS_FATAL ANY)
endif()" COMPONENT program)
endif()
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/run DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME tutti-run COMPONENT program)

# A relative link is valid for any prefix and DESTDIR.
set(alias_folder ${CMAKE_INSTALL_LIBEXECDIR}/tutti)
file(RELATIVE_PATH program_from_alias /${alias_folder} /${CMAKE_INSTALL_BINDIR}/tutti)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/alias)
file(CREATE_LINK ${program_from_alias} ${PROJECT_BINARY_DIR}/alias/trainer SYMBOLIC)
install(FILES ${PROJECT_BINARY_DIR}/alias/trainer DESTINATION ${alias_folder} COMPONENT program)

# Commands that are separate programs (src/app/companion.cpp).
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/companions/ DESTINATION ${alias_folder} COMPONENT program
        USE_SOURCE_PERMISSIONS PATTERN __pycache__ EXCLUDE)

# The Python tools are in the folder of the trainer that they call, and bin has links to them.
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/export ${PROJECT_SOURCE_DIR}/tools/plot DESTINATION ${alias_folder}
        COMPONENT program)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/exporting ${PROJECT_SOURCE_DIR}/tools/plotting
        DESTINATION ${alias_folder} COMPONENT program PATTERN __pycache__ EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/tools/peers/peer_python.py DESTINATION ${alias_folder}/peers COMPONENT program)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/jobs/models DESTINATION ${alias_folder}/jobs COMPONENT program)
foreach(tool IN ITEMS export plot)
  file(RELATIVE_PATH tool_from_bin /${CMAKE_INSTALL_BINDIR} /${alias_folder}/${tool})
  file(CREATE_LINK ${tool_from_bin} ${PROJECT_BINARY_DIR}/alias/tutti-${tool} SYMBOLIC)
  install(FILES ${PROJECT_BINARY_DIR}/alias/tutti-${tool} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endforeach()

# Documents are laid out as in the checkout, with a link to the jobs, so that links between them hold.
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
              ${PROJECT_SOURCE_DIR}/CITATION.cff
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(FILES ${PROJECT_SOURCE_DIR}/tools/README.md ${PROJECT_SOURCE_DIR}/tools/GPU-STATUS.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/tools COMPONENT program)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/plots DESTINATION ${CMAKE_INSTALL_DOCDIR}/tools COMPONENT program)
install(FILES ${PROJECT_SOURCE_DIR}/tests/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/tests COMPONENT program)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/consumer/project DESTINATION ${CMAKE_INSTALL_DOCDIR}/tests/consumer
        COMPONENT program)
file(CREATE_LINK examples/jobs ${PROJECT_BINARY_DIR}/alias/jobs SYMBOLIC)
install(FILES ${PROJECT_BINARY_DIR}/alias/jobs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

set(jobs_folder ${CMAKE_INSTALL_DOCDIR}/examples)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/jobs DESTINATION ${jobs_folder} COMPONENT program
        PATTERN chain EXCLUDE PATTERN health-check EXCLUDE PATTERN hosts EXCLUDE)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/jobs/chain ${PROJECT_SOURCE_DIR}/jobs/health-check
                 ${PROJECT_SOURCE_DIR}/jobs/hosts DESTINATION ${jobs_folder}/jobs COMPONENT program)

# module use PREFIX/share/modulefiles; packages do not need it.
install(FILES ${PROJECT_SOURCE_DIR}/tools/packaging/modulefile RENAME ${PROJECT_VERSION}
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/modulefiles/tutti COMPONENT module)

# Texts that the program prints, if it can run here: under a sanitizer it may need more than a build has.
find_program(TUTTI_GZIP gzip)
find_program(TUTTI_PYTHON3 python3)
if(NOT CMAKE_CROSSCOMPILING AND NOT TUTTI_SANITIZE AND TUTTI_GZIP AND TUTTI_PYTHON3)
  include(TuttiDocuments)
endif()
