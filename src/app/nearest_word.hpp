#pragma once
// What somebody may have meant who wrote a word that is none of those known.

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// The known word that fewest slips lead to: letters left out, added, changed, or swapped with their neighbours. Empty
// where that would take more than one for every three letters.
std::string nearest_word(std::string_view written, const std::vector<std::string>& known);
// What replaced an option or command of earlier versions, in a sentence without its end; empty of other words.
std::string_view moved_to(std::string_view written);
// That, "did you mean 'lenet'? See HELP", or only "see HELP".
std::string what_to_do(std::string_view written, const std::vector<std::string>& known, std::string_view help);

}  // namespace tutti
