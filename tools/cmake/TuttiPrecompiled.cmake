# Headers of other projects that most of our sources include are precompiled once per target, which saves a quarter to a
# third of the compiler's time. Every source still includes what it uses, and compiles without precompiled headers
# (CMAKE_DISABLE_PRECOMPILE_HEADERS=ON), as it does with ccache, which cannot see the files in a precompiled header.
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES ccache)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()
set(TUTTI_PRECOMPILED
    <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional> <map> <memory> <mutex> <optional>
    <set> <span> <sstream> <string> <string_view> <system_error> <thread> <utility> <variant> <vector> <fmt/format.h>)

# tutti_precompile(TARGET [HEADER...]): these headers, and more where that target's sources share more.
function(tutti_precompile target)
  target_precompile_headers(${target} PRIVATE ${TUTTI_PRECOMPILED} ${ARGN})
endfunction()
