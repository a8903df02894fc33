#pragma once
// Scripts by which shells complete commands, options and the words that these choose among. Made from the command line
// itself, so that they forget nothing; a shell that reads one starts no program.

#include "described_commands.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// For the program called so, in bash, zsh or fish.
std::string completion_script(std::string_view shell, const std::string& program,
                              const std::vector<DescribedCommand>& commands);

}  // namespace tutti
