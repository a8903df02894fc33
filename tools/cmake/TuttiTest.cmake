# tutti_add_test(MODULE/SUBJECT [LABELS ...] [RANKS 1 2 4 ...] [LIBRARIES ...] [SECONDS n] [ENVIRONMENT ...]
#                [VARIANT name] [FILTER pattern] [PROGRAM name])
#
# Adds tests/MODULE/SUBJECT_test.cpp to one of the module's test programs and registers its suites with CTest as
# MODULE.SUBJECT; with a VARIANT once more under another name, and with FILTER for these tests only. Without RANKS: one
# test, label `unit`, in MODULE_tests. With RANKS: one test per rank count, label `mpi`, started by mpiexec, in
# MODULE_rank_tests, with one result over all ranks (tests/support/mpi_main.cpp). PROGRAM: another program of the
# module, for sources with other compile or link options. Variables permit Open MPI to run as root and with more ranks
# than cores, so that MPICH needs no other line. Open MPI does not look for a network, which takes a quarter of a second
# at every start. A cache folder that is a relative path is not used, so that tests do not write to that of the user.
set(TUTTI_MPI_TEST_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    PRTE_MCA_hwloc_default_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_pml=ob1
    XDG_CACHE_HOME=none)
# After a rank that failed Open MPI waits a second before it kills the others, which have ended by then.
set(TUTTI_NO_GRACE OMPI_MCA_odls_base_sigkill_timeout=0)
set(TUTTI_SANITIZER_ENVIRONMENT
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/leaks.supp:print_suppressions=0"
    "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/threads.supp:ignore_noninstrumented_modules=1")

# All test programs have the same compile options, so that they can share the precompiled header of tests/support.
function(tutti_compile_as_test target)
  target_link_libraries(${target} PRIVATE tutti GTest::gmock fmt::fmt Threads::Threads)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>) # the tested code is optimised more
  set_target_properties(${target} PROPERTIES TUTTI_IS_TEST ON RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endfunction()

# Targets that tests labelled `mpi` start. Target mpi_tests builds them (tests/CMakeLists.txt).
function(tutti_needed_by_mpi_tests)
  set_property(GLOBAL APPEND PROPERTY TUTTI_NEEDED_BY_MPI_TESTS ${ARGN})
endfunction()

# The suites that are defined in a file, as a filter for GoogleTest.
function(tutti_filter_of_suites file result)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} lines REGEX "^(TEST|TEST_F|TEST_P|TYPED_TEST|INSTANTIATE_TEST_SUITE_P)\\(")
  set(filter)
  foreach(line IN LISTS lines)
    if(line MATCHES "^INSTANTIATE_TEST_SUITE_P\\(([A-Za-z0-9_]+), *([A-Za-z0-9_]+)")
      list(APPEND filter ${CMAKE_MATCH_1}/${CMAKE_MATCH_2}.*)
    elseif(line MATCHES "^TEST(_F)?\\(([A-Za-z0-9_]+)")
      list(APPEND filter ${CMAKE_MATCH_2}.*)
    elseif(line MATCHES "^TYPED_TEST\\(([A-Za-z0-9_]+)")
      list(APPEND filter ${CMAKE_MATCH_1}/*)
    elseif(line MATCHES "^TEST_P\\(([A-Za-z0-9_]+)")
      list(APPEND filter */${CMAKE_MATCH_1}.*)
    endif()
  endforeach()
  list(REMOVE_DUPLICATES filter)
  list(JOIN filter ":" filter)
  set(${result} ${filter} PARENT_SCOPE)
endfunction()

# With a sanitizer, which is to watch the tested code, the tests' own lines would need half of the compiler's time.
set(TUTTI_TEST_OBJECTS_FROM "" CACHE PATH "Complete build folder of the same sources whose objects of tests to link")

# Creates a test program if there is none of that name yet, and adds a source to it once.
function(tutti_add_to_test_program target source has_ranks)
  if(NOT TARGET ${target})
    add_executable(${target})
    if(NOT target MATCHES "^backend_") # whose sources have flags of their own, and few in common
      set_target_properties(${target} PROPERTIES UNITY_BUILD ${TUTTI_UNITY}
                                                UNITY_BUILD_BATCH_SIZE ${TUTTI_UNITY_GROUP})
    endif()
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
    tutti_compile_as_test(${target})
    if(target MATCHES "program_tests$") # they start programs, and their own lines need no speed
      set_target_properties(${target} PROPERTIES TUTTI_IS_TEST OF_PROGRAMS)
      target_compile_options(${target} PRIVATE -O0)
    else()
      target_precompile_headers(${target} REUSE_FROM tutti_test_headers)
    endif()
    target_link_libraries(${target} PRIVATE $<IF:$<BOOL:${has_ranks}>,tutti_mpi_test_main,tutti_test_main>)
    if(TUTTI_TEST_OBJECTS_FROM)
      tutti_built_objects(${TUTTI_TEST_OBJECTS_FROM} tests/${target} ${target} objects)
      target_sources(${target} PRIVATE ${objects})
      set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    endif()
  endif()
  if(TUTTI_TEST_OBJECTS_FROM)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  if(NOT source IN_LIST sources)
    target_sources(${target} PRIVATE ${source})
  endif()
endfunction()

function(tutti_add_test path)
  cmake_parse_arguments(ARG "" "SECONDS;VARIANT;FILTER;PROGRAM" "LABELS;RANKS;LIBRARIES;ENVIRONMENT" ${ARGN})
  get_filename_component(module ${path} DIRECTORY)
  string(REPLACE "/" "." name ${path})
  if(ARG_VARIANT)
    set(name ${name}.${ARG_VARIANT})
  endif()
  if(NOT ARG_SECONDS)
    set(ARG_SECONDS 120)
  endif()
  if(TUTTI_SANITIZE STREQUAL thread)
    math(EXPR ARG_SECONDS "4 * ${ARG_SECONDS}")
  elseif(CMAKE_CROSSCOMPILING) # an emulator runs the tests
    math(EXPR ARG_SECONDS "10 * ${ARG_SECONDS}")
  endif()
  set(target ${module})
  if(ARG_PROGRAM)
    string(APPEND target _${ARG_PROGRAM})
  endif()
  if(ARG_RANKS)
    string(APPEND target _rank)
  endif()
  string(APPEND target _tests)

  set(source ${PROJECT_SOURCE_DIR}/tests/${path}_test.cpp)
  tutti_add_to_test_program(${target} ${source} "${ARG_RANKS}")
  if(NOT TARGET tests_of_${module})
    add_custom_target(tests_of_${module})
  endif()
  add_dependencies(tests_of_${module} ${target})
  target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES})
  if((ARG_RANKS OR mpi IN_LIST ARG_LABELS) AND NOT slow IN_LIST ARG_LABELS)
    tutti_needed_by_mpi_tests(${target})
  endif()
  if(NOT ARG_FILTER)
    tutti_filter_of_suites(${source} ARG_FILTER)
  endif()
  set(command ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${target}> --gtest_filter=${ARG_FILTER})
  set(labels ${ARG_LABELS})
  if(ARG_RANKS)
    list(PREPEND labels mpi)
    foreach(ranks IN LISTS ARG_RANKS)
      add_test(NAME ${name}.${ranks}_ranks COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${command})
      set_tests_properties(
        ${name}.${ranks}_ranks
        PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_SECONDS} PROCESSORS 2
                   ENVIRONMENT "${TUTTI_MPI_TEST_ENVIRONMENT};${TUTTI_SANITIZER_ENVIRONMENT};${ARG_ENVIRONMENT}")
    endforeach()
  else()
    if(NOT labels)
      set(labels unit)
    endif()
    add_test(NAME ${name} COMMAND ${command})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_SECONDS}
                                            ENVIRONMENT "${TUTTI_SANITIZER_ENVIRONMENT};${ARG_ENVIRONMENT}")
  endif()
endfunction()

# tutti_add_cuda_test(MODULE/SUBJECT [as above]): a suite for libtutti_cuda.so, if that is built. It has the label `gpu`
# on a device, and the labels of tutti_add_test on the stand-in for one (tests/standin).
function(tutti_add_cuda_test path)
  if(TARGET tutti_cuda)
    cmake_parse_arguments(ARG "" "PROGRAM" "" ${ARGN})
    if(NOT TUTTI_SANITIZE)
      tutti_add_test(${path} ${ARG_UNPARSED_ARGUMENTS} PROGRAM ${ARG_PROGRAM}gpu LABELS gpu LIBRARIES tutti_cuda)
    endif()
    tutti_add_test(${path} ${ARG_UNPARSED_ARGUMENTS} PROGRAM ${ARG_PROGRAM}standin VARIANT standin
                   LIBRARIES tutti_cuda_standin)
  endif()
endfunction()
