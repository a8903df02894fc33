#pragma once
// The manual page, in the form that man reads: what all commands' --help says, in one place.

#include "described_commands.hpp"

#include <string>
#include <vector>

namespace tutti {

// Of the program called so. `statuses` lists the exit statuses, as help does.
std::string manual_page(const std::string& program, const std::vector<DescribedCommand>& commands,
                        const std::string& statuses);

}  // namespace tutti
