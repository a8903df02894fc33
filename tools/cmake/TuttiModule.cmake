# tutti_add_module(NAME SOURCES ... LIBRARIES ...): one object library whose vendor libraries are private to it,
# so that a vendor header elsewhere does not compile where the distribution keeps it off the default path.
function(tutti_add_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(tutti_${name} OBJECT ${ARG_SOURCES})
  target_link_libraries(tutti_${name} PRIVATE tutti_flags fmt::fmt Threads::Threads ${ARG_LIBRARIES})
  tutti_precompile(tutti_${name})
  set_property(GLOBAL APPEND PROPERTY TUTTI_MODULES tutti_${name})
endfunction()
