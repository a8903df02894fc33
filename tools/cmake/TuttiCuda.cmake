# Whether libtutti_cuda.so can be built: sets TUTTI_CUDA_FOUND, the language and the targets that it needs.
# With TUTTI_CUDA=AUTO something missing is one status line; with ON it is an error.
set(TUTTI_CUDA_FOUND FALSE)
if(NOT TUTTI_CUDA)
  return()
endif()
if(TUTTI_CUDA STREQUAL "AUTO")
  set(severity STATUS)
else()
  set(severity FATAL_ERROR)
endif()

include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(TUTTI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(TUTTI_NVCC)
    set(ENV{CUDACXX} ${TUTTI_NVCC})
  endif()
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE) # so that the next run looks again
  message(${severity} "CUDA: not built; no working nvcc on the PATH or in /usr/local/cuda/bin (set CUDACXX)")
  return()
endif()

# Ampere, Hopper with PTX for later generations, and Blackwell workstations where the compiler supports them.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(architectures 80-real 90)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known)
  if(known MATCHES compute_120)
    list(APPEND architectures 120)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${architectures}" CACHE STRING "GPU generations to build for")
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake 3.25 and older do not know nvcc's flag
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)
if(CUDAToolkit_VERSION VERSION_LESS 12)
  message(${severity}
          "CUDA: not built; ${CUDAToolkit_VERSION} was found in ${CUDAToolkit_BIN_DIR}, 12 or newer is needed")
  return()
endif()

foreach(library cudnn nccl)
  string(TOUPPER ${library} name)
  find_path(TUTTI_${name}_INCLUDE_DIR ${library}.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(TUTTI_${name}_LIBRARY ${library} HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(NOT TUTTI_${name}_INCLUDE_DIR OR NOT TUTTI_${name}_LIBRARY)
    message(${severity} "CUDA: not built; ${library}.h or lib${library}.so was not found "
                        "(set TUTTI_${name}_INCLUDE_DIR and TUTTI_${name}_LIBRARY)")
    return()
  endif()
  add_library(tutti_${library} INTERFACE)
  target_include_directories(tutti_${library} SYSTEM INTERFACE ${TUTTI_${name}_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(tutti_${library} INTERFACE ${TUTTI_${name}_LIBRARY})
endforeach()

add_library(tutti_cuda_flags INTERFACE)
# Line numbers for profilers and compute-sanitizer, which cost kernels nothing.
target_compile_options(
  tutti_cuda_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo;-Xcompiler=-Wall,-Wextra,-Wshadow,-Wundef>")
if(TUTTI_WERROR)
  target_compile_options(tutti_cuda_flags
                         INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>)
endif()
set(TUTTI_CUDA_FOUND TRUE)
message(STATUS "CUDA: ${CUDAToolkit_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
