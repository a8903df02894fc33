# What most of our sources include of others' headers, read once for a target and not for each of its sources: a
# quarter to a third of the compiler's time. Every source includes what it uses all the same, and compiles without
# (CMAKE_DISABLE_PRECOMPILE_HEADERS=ON), as it does where ccache launches the compiler, which keeps objects by what was
# read for them and cannot look into what another run of the compiler has read.
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES ccache)
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()
set(TUTTI_PRECOMPILED
    <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional> <map> <memory> <mutex> <optional>
    <set> <span> <sstream> <string> <string_view> <system_error> <thread> <utility> <variant> <vector> <fmt/format.h>)

# tutti_precompile(TARGET [HEADER...]): these, and more where that target's sources agree on more.
function(tutti_precompile target)
  target_precompile_headers(${target} PRIVATE ${TUTTI_PRECOMPILED} ${ARGN})
endfunction()
