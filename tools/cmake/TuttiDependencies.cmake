# Everything found here comes from the distribution; tools/setup installs it. Nothing is downloaded.
find_package(Threads REQUIRED)
set(MPI_DETERMINE_LIBRARY_VERSION ON)
find_package(MPI REQUIRED COMPONENTS C)
# The launcher of another MPI would start as many lone processes as ranks are asked for.
execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE mpiexec_version ERROR_QUIET)
if((MPI_C_LIBRARY_VERSION_STRING MATCHES "^Open MPI" AND mpiexec_version MATCHES "HYDRA")
   OR (MPI_C_LIBRARY_VERSION_STRING MATCHES "^MPICH" AND mpiexec_version MATCHES "OpenRTE|Open MPI"))
  string(REGEX MATCH "^(Open MPI|MPICH)" mpi_library "${MPI_C_LIBRARY_VERSION_STRING}")
  message(FATAL_ERROR "${MPIEXEC_EXECUTABLE} is the launcher of another MPI than ${mpi_library} (${MPI_C_LIBRARIES}). "
                      "Name both in an empty build folder: -DMPI_C_COMPILER=/path/to/mpicc "
                      "-DMPIEXEC_EXECUTABLE=/path/to/mpiexec, or on Debian -DMPI_EXECUTABLE_SUFFIX=.mpich or .openmpi")
endif()
set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 REQUIRED COMPONENTS C)
if(NOT TUTTI_FUZZ) # Clang's would be one package more
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(TIFF REQUIRED)
find_package(toml11 REQUIRED)
if(TUTTI_TESTS)
  find_package(GTest REQUIRED)
endif()

add_library(tutti_hdf5 INTERFACE)
target_include_directories(tutti_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(tutti_hdf5 INTERFACE ${HDF5_C_LIBRARIES})
