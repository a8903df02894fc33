#pragma once
// A run's report: one page that holds everything it shows, asks nothing of the network and runs no script.

#include "sections.hpp"

#include <string>

namespace tutti {

std::string report_page(const RunHistory& history, const ScoresOrReason& scores);

}  // namespace tutti
