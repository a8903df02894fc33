# tutti_add_module(NAME SOURCES ... [LIBRARIES ...] [OPTIONS ...]): one object library. Its vendor libraries are private
# to it, so that including a vendor's header elsewhere fails where the distribution keeps it off the default path.
# Modules without compiler OPTIONS share the precompiled header of base.
#
# With TUTTI_UNITY the compiler gets the sources of a module or test program in groups, so that it reads their headers
# and instantiates templates once per group. Sources with flags of their own stay alone.
option(TUTTI_UNITY "Compile sources in groups, in 0.6 of the time; OFF: after a change, only what has changed" ON)
set(TUTTI_UNITY_GROUP 8)
function(tutti_add_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES;OPTIONS" ${ARGN})
  add_library(tutti_${name} OBJECT ${ARG_SOURCES})
  target_link_libraries(tutti_${name} PRIVATE tutti_flags fmt::fmt Threads::Threads ${ARG_LIBRARIES})
  target_compile_options(tutti_${name} PRIVATE ${ARG_OPTIONS})
  if(ARG_OPTIONS OR name STREQUAL base)
    tutti_precompile(tutti_${name})
  else()
    target_precompile_headers(tutti_${name} REUSE_FROM tutti_base)
  endif()
  set_target_properties(tutti_${name} PROPERTIES UNITY_BUILD ${TUTTI_UNITY} UNITY_BUILD_BATCH_SIZE ${TUTTI_UNITY_GROUP})
  set_property(GLOBAL APPEND PROPERTY TUTTI_MODULES tutti_${name})
endfunction()

# The objects of a target that another build folder links into a library or program.
function(tutti_built_objects folder linked target result)
  execute_process(COMMAND ${CMAKE_MAKE_PROGRAM} -C ${folder} -t query ${linked} OUTPUT_VARIABLE inputs
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n ]+/${target}\\.dir/[^\n ]+\\.o" objects "${inputs}")
  list(TRANSFORM objects PREPEND ${folder}/)
  set(${result} ${objects} PARENT_SCOPE)
endfunction()

# A build may take the objects of modules from an existing build that differs from it in nothing else but its MPI, or in
# that it has no sanitizer. Only comm includes mpi.h.
set(TUTTI_OBJECTS_FROM "" CACHE PATH "Build folder whose objects to link, except those of module comm for another MPI")
function(tutti_link_module target module)
  if(NOT TUTTI_OBJECTS_FROM OR (module STREQUAL tutti_comm AND NOT TUTTI_SANITIZE))
    target_link_libraries(${target} PRIVATE ${module})
    return()
  endif()
  tutti_built_objects(${TUTTI_OBJECTS_FROM} libtutti.so.${PROJECT_VERSION} ${module} objects)
  target_sources(${target} PRIVATE ${objects})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${target} PRIVATE $<TARGET_PROPERTY:${module},LINK_LIBRARIES>)
endfunction()
