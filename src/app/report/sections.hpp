#pragma once
// The pieces of a report, each a piece of markup of its own, in the order in which they are read.

#include "html.hpp"
#include "run_history.hpp"
#include "scored_set.hpp"

#include <string>
#include <vector>

namespace tutti {

// How it came out, in one sentence.
std::string headline(const RunHistory& history);
Html heading_of(const RunHistory& history);
Html curves_of(const RunHistory& history);
Html times_of(const RunHistory& history);
Html events_of(const RunHistory& history);
Html record_of(const RunHistory& history);
// How it names each class; or why that is not known.
Html classes_of(const ScoresOrReason& scores);
Html pictures_of(const ScoresOrReason& scores);

// What they are made of: a section with its title, and a table whose rows are as wide as its head.
Html section_of(const char* id, const char* title, const Html& content);
Html paragraph(std::string_view words);
// A piece that is not there, and why.
Html absence(std::string_view reason);
using Row = std::vector<std::string>;
Html table_of(const Row& head, const std::vector<Row>& rows);
// Behind its title, which opens it.
Html folded(std::string_view title, const Html& content);

}  // namespace tutti
