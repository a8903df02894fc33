# Builds for 64-bit ARM on another processor, with Debian's cross compiler and the packages that tools/setup --cross
# unpacks. Programs for ARM that the build or a test starts run under QEMU.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

get_filename_component(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/arm64-root ABSOLUTE)
if(NOT IS_DIRECTORY ${CMAKE_SYSROOT})
  message(FATAL_ERROR "${CMAKE_SYSROOT} does not exist; tools/setup --cross arm64 makes it")
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})

# What tools/setup --cross arm64 --cuda unpacks.
set(cuda ${CMAKE_SYSROOT}/usr/local/cuda)
if(EXISTS ${cuda}/bin/nvcc)
  set(CMAKE_CUDA_COMPILER ${cuda}/bin/nvcc)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(CMAKE_CUDA_FLAGS_INIT "-target-dir sbsa-linux")
endif()

# These modules would ask the compiler wrappers of the processor at hand.
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(openmpi ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi)
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(MPI_C_LIB_NAMES mpi CACHE STRING "")
set(MPI_mpi_LIBRARY ${openmpi}/lib/libmpi.so CACHE FILEPATH "")
set(MPI_C_HEADER_DIR ${openmpi}/include CACHE PATH "")
set(HDF5_C_COMPILER_EXECUTABLE ${CMAKE_SYSROOT}/usr/bin/h5cc CACHE FILEPATH "")
