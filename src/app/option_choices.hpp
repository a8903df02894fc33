#pragma once
// The words among which a user chooses, for those options that take no others: what is refused otherwise, and what
// shells complete.

#include <span>
#include <string_view>

namespace tutti {

// Empty for an option that takes other values; `option` is its name without the dashes. Few have other words in one
// command than in the rest.
std::span<const std::string_view> choices_of(std::string_view option, std::string_view command = {});

}  // namespace tutti
