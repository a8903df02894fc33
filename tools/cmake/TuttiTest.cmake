# tutti_add_test(MODULE/SUBJECT [LABELS ...] [RANKS 1 2 4 ...] [LIBRARIES ...] [SECONDS n] [ENVIRONMENT ...]
#                [VARIANT name])
#
# Builds tests/MODULE/SUBJECT_test.cpp; once more under another name where a variant is given. Without RANKS: one
# test, label `unit`, no launcher. With RANKS: one test per rank count, label `mpi`, started by mpiexec, with one
# verdict over all ranks (tests/support/mpi_main.cpp). Open MPI's consent to root and to more ranks than cores is given
# by environment, so that MPICH needs no other line.
set(TUTTI_MPI_TEST_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    PRTE_MCA_hwloc_default_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1)
set(TUTTI_SANITIZER_ENVIRONMENT
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/leaks.supp:print_suppressions=0"
    "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/threads.supp:ignore_noninstrumented_modules=1")

# Every program of GoogleTest's is compiled alike, so that they can share what tests/support has precompiled for them.
function(tutti_compile_as_test target)
  target_link_libraries(${target} PRIVATE tutti GTest::gtest fmt::fmt Threads::Threads)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>) # its own lines run once: what they test is fast
  set_target_properties(${target} PROPERTIES TUTTI_IS_TEST ON RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endfunction()

# What the tests labelled `mpi` start, which target mpi_tests builds (tests/CMakeLists.txt).
function(tutti_needed_by_mpi_tests)
  set_property(GLOBAL APPEND PROPERTY TUTTI_NEEDED_BY_MPI_TESTS ${ARGN})
endfunction()

function(tutti_add_test path)
  cmake_parse_arguments(ARG "" "SECONDS;VARIANT" "LABELS;RANKS;LIBRARIES;ENVIRONMENT" ${ARGN})
  string(REPLACE "/" "_" target ${path}_test)
  string(REPLACE "/" "." name ${path})
  if(ARG_VARIANT)
    set(target ${target}_${ARG_VARIANT})
    set(name ${name}.${ARG_VARIANT})
  endif()
  if(NOT ARG_SECONDS)
    set(ARG_SECONDS 120)
  endif()

  add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/${path}_test.cpp)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  tutti_compile_as_test(${target})
  target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES})
  target_precompile_headers(${target} REUSE_FROM tutti_test_headers)
  if((ARG_RANKS OR mpi IN_LIST ARG_LABELS) AND NOT slow IN_LIST ARG_LABELS)
    tutti_needed_by_mpi_tests(${target})
  endif()

  if(ARG_RANKS)
    target_link_libraries(${target} PRIVATE tutti_mpi_test_main)
    foreach(ranks IN LISTS ARG_RANKS)
      set(test ${name}.${ranks}_ranks)
      add_test(NAME ${test} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${target}>)
      set_tests_properties(
        ${test}
        PROPERTIES LABELS "mpi;${ARG_LABELS}" TIMEOUT ${ARG_SECONDS} PROCESSORS 2
                   ENVIRONMENT "${TUTTI_MPI_TEST_ENVIRONMENT};${TUTTI_SANITIZER_ENVIRONMENT};${ARG_ENVIRONMENT}")
    endforeach()
  else()
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
    set(labels ${ARG_LABELS})
    if(NOT labels)
      set(labels unit)
    endif()
    add_test(NAME ${name} COMMAND ${target})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_SECONDS}
                                            ENVIRONMENT "${TUTTI_SANITIZER_ENVIRONMENT};${ARG_ENVIRONMENT}")
  endif()
endfunction()

# tutti_add_cuda_test(MODULE/SUBJECT [as above]): a suite for libtutti_cuda.so, where that is built. Label `gpu` on a
# device; and with the labels it would have otherwise on the stand-in for one (tests/standin).
function(tutti_add_cuda_test path)
  if(NOT TARGET tutti_cuda)
    return()
  endif()
  string(REPLACE "/" "_" target ${path}_test)
  tutti_add_test(${path} ${ARGN} LABELS gpu LIBRARIES tutti_cuda)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  tutti_add_test(${path} ${ARGN} VARIANT standin LIBRARIES tutti_cuda_standin)
endfunction()
