#pragma once
// Answers of cuDNN that are recorded in a file of this folder, one per line: a subject, " | ", the answer.

#include "backend/cuda/convolution.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

namespace tutti::cuda {

using Answers = std::map<std::string, std::string>;  // by subject

struct RecordedAnswers {
  std::string comments;  // the lines at the top that begin with #
  std::string library;   // "cuDNN 9.19.0", the next line
  Answers answers;

  explicit RecordedAnswers(const std::string& path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const auto bar = line.find(" | ");
      if (line.starts_with('#')) {
        comments += line + "\n";
      } else if (bar == std::string::npos) {
        library = line;
      } else {
        answers[line.substr(0, bar)] = line.substr(bar + 3);
      }
    }
  }
};

// Compares answers with those in the file. Versions of cuDNN differ in their answers: those of another version than the
// recorded one are not compared. Prints how to record answers that differ.
inline void expect_recorded(const std::string& file, const Answers& answers) {
  const std::string path = fmt::format("{}/{}", TUTTI_RECORDED_ANSWERS, file);
  RecordedAnswers record(path);
  if (record.library != convolution_library()) {
    fmt::print("{} differs from the {} of {}: the answers were not compared\n", convolution_library(), record.library,
               path);
    record.answers.clear();
  }
  Answers merged = answers;
  merged.insert(record.answers.begin(), record.answers.end());
  if (merged == record.answers) return;
  const std::string now = testing::TempDir() + file;
  std::ofstream text(now);
  text << record.comments << convolution_library() << "\n";
  for (const auto& [subject, answer] : merged) text << subject << " | " << answer << "\n";
  fmt::print("To record the answers of {}: diff {} {}; cp {} {}\n", convolution_library(), path, now, now, path);
  if (record.library != convolution_library()) return;
  for (const auto& [subject, answer] : answers) {
    const auto recorded = record.answers.find(subject);
    if (recorded != record.answers.end()) {
      EXPECT_EQ(recorded->second, answer) << subject;
    } else {
      ADD_FAILURE() << "not recorded: " << subject << " | " << answer;
    }
  }
}

}  // namespace tutti::cuda
