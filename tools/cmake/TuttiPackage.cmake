# cpack in a build folder makes Debian packages: tutti with the programs, and libtutti-dev for building other programs.
# The preset `package` lays the files out as Debian does.
set(CPACK_GENERATOR DEB)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_VENDOR Tutti)
set(TUTTI_PACKAGER "Tutti <tutti@localhost>" CACHE STRING "Whom users of the packages turn to: NAME <ADDRESS>")
set(CPACK_PACKAGE_CONTACT "${TUTTI_PACKAGER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME tutti)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
    "deep-learning training that behaves like an HPC code
Trains image classifiers on MPI ranks, one per GPU or CPU slot. Weights are the
same bits at any number of ranks, and a run that was stopped resumes from its
checkpoint with as many ranks as there are.")
if(MPI_C_LIBRARY_VERSION_STRING MATCHES "^Open MPI")
  set(recommended openmpi-bin)
else()
  set(recommended mpich)
endif()
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "${recommended}, python3")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtutti-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "tutti (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "training with a custom network and data set
The headers of Tutti's library, and what find_package(tutti) reads.")
include(CPack)
