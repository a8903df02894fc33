#pragma once
// Figures as people read them, with their units.

#include <cstdint>
#include <optional>
#include <string>

namespace tutti {

std::string percent_text(double share);  // "99.48 %"; whole where it is all or nothing, and only there
std::string decimal_text(std::optional<double> value, int digits = 4);  // "-" where there is none
std::string seconds_text(double seconds);                               // "12 ms", "3.2 s", "5 min 12 s", "2 h 5 min"
std::string count_text(std::int64_t count);                             // "20,000"
std::string whole_text(double value);                                   // likewise, rounded
std::string bytes_text(double bytes);                                   // "1.0 MiB"
std::string rate_text(double value);                                    // "0.05", as short as it is

}  // namespace tutti
