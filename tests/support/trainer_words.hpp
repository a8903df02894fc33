#pragma once
// Words of the trainer's command line and of its output.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace tutti::test {

using Words = std::vector<std::string>;

// Splits a text at blanks.
inline Words words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

inline Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The number that a variable of the environment holds, if it is set.
inline std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// The text after the last occurrence of `word`, up to a comma or the end of the line.
inline std::string last_word(const std::string& text, const std::string& word) {
  const std::size_t at = text.rfind(word);
  if (at == std::string::npos) {
    ADD_FAILURE() << "no '" << word << "' in: " << text;
    return {};
  }
  const std::size_t begin = at + word.size();
  return text.substr(begin, text.find_first_of(",\n", begin) - begin);
}

}  // namespace tutti::test
