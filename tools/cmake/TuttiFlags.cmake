# Compiler flags that hold for all of our own code, as one interface target.
add_library(tutti_flags INTERFACE)
target_include_directories(tutti_flags INTERFACE ${PROJECT_SOURCE_DIR}/include)

# Sources for one kind of processor are in folders of this name.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(TUTTI_PROCESSOR x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(TUTTI_PROCESSOR arm64)
else()
  message(FATAL_ERROR "Tutti has no code for this kind of processor: ${CMAKE_SYSTEM_PROCESSOR}")
endif()

# Equal bits on all processors: no contraction, no fast-math, no global -march.
target_compile_options(
  tutti_flags
  INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Wold-style-cast>"
            "$<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual;-Wundef>")
if(TUTTI_PROCESSOR STREQUAL arm64) # where char has no sign by default
  target_compile_options(tutti_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsigned-char>)
endif()
if(TUTTI_WERROR)
  target_compile_options(tutti_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(TUTTI_SANITIZE)
  target_compile_options(
    tutti_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TUTTI_SANITIZE}>"
                          "$<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  target_link_options(tutti_flags INTERFACE -fsanitize=${TUTTI_SANITIZE})
  if(TUTTI_SANITIZE MATCHES address.*undefined) # the first reports null pointers as well, with less code
    target_compile_options(tutti_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null>)
  endif()
  # The lines of tests themselves, which would need most of the compiler's time, are watched for their addresses alone,
  # and not at all in tests that only start programs.
  set(test $<TARGET_PROPERTY:TUTTI_IS_TEST>)
  target_compile_options(
    tutti_flags INTERFACE "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${test}>>:-fno-sanitize=undefined;-O0>"
                          $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<STREQUAL:${test},OF_PROGRAMS>>:-fno-sanitize=all>)
endif()
