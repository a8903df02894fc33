#pragma once
// What a message tells its reader: the source of an error or the status of a program, the file, option or rank that is
// named, and the remedy. The other words of a message are not for tests.

#include "tutti/base/error.hpp"

#include <gmock/gmock.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// Matches a text that contains all of some words.
class Mentions {
 public:
  using is_gtest_matcher = void;
  explicit Mentions(std::vector<std::string> words) : words_(std::move(words)) {}

  bool MatchAndExplain(const std::string& text, std::ostream* why) const {
    for (const std::string& word : words_) {
      if (text.find(word) != std::string::npos) continue;
      if (why != nullptr) *why << "which lacks '" << word << "'";
      return false;
    }
    return true;
  }
  void DescribeTo(std::ostream* out) const { *out << "mentions " << testing::PrintToString(words_); }
  void DescribeNegationTo(std::ostream* out) const { *out << "does not mention " << testing::PrintToString(words_); }

 private:
  std::vector<std::string> words_;
};

template <class... Words>
Mentions mentions(const Words&... words) {
  return Mentions({std::string(words)...});
}

// Matches the result of a program that ended with this status and an error output that contains all of some words.
class Ends {
 public:
  using is_gtest_matcher = void;
  Ends(int status, std::vector<std::string> words) : status_(status), words_(std::move(words)) {}

  template <class Result>
  bool MatchAndExplain(const Result& result, std::ostream* why) const {
    if (result.status == status_ && words_.MatchAndExplain(result.err, why)) return true;
    if (why != nullptr) *why << "; it ended with " << result.status << ":\n" << result.out << result.err;
    return false;
  }
  void DescribeTo(std::ostream* out) const {
    *out << "ends with " << status_ << " and ";
    words_.DescribeTo(out);
  }
  void DescribeNegationTo(std::ostream* out) const { *out << "does not end with " << status_; }

 private:
  int status_;
  Mentions words_;
};

template <class... Words>
Ends ends(int status, const Words&... words) {
  return {status, {std::string(words)...}};
}

// Matches an Error of this source whose message has all of these words.
template <class... Words>
testing::Matcher<const Error&> reports(ErrorSource source, const Words&... words) {
  return testing::AllOf(testing::Property("source", &Error::source, source),
                        testing::Property("message", &Error::what, mentions(words...)));
}

}  // namespace tutti
