#include "tutti/train/sample_scores.hpp"

#include "confusion.hpp"
#include "predict/prediction.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::size_t> numbers(const std::vector<RankedClass>& classes) {
  std::vector<std::size_t> all;
  for (const RankedClass& one : classes) all.push_back(one.number);
  return all;
}

TEST(BestClasses, AreThoseOfTheGreatestOutputsAndTheFirstOfEquals) {
  const std::vector<SampleScore> samples{{.exponentials = 3, .predicted = 1}, {.exponentials = 3, .predicted = 1}};
  const std::vector<float> logits{0, 0, 0, 0, 1, 5, 5, 3};
  const ChunkScores scores{.classes = 4, .samples = samples, .logits = logits};
  EXPECT_THAT(numbers(best_classes(scores, 0, 2)), ElementsAre(0, 1));
  EXPECT_THAT(numbers(best_classes(scores, 1, 3)), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers(best_classes(scores, 1, 9)), ElementsAre(1, 2, 3, 0));
}

// Their probabilities are the same double.
TEST(BestClasses, TellOutputsApartWhoseProbabilitiesAreEqual) {
  const std::vector<SampleScore> samples{{.exponentials = 1, .predicted = 0}};
  const std::vector<float> logits{1000, -2000, -1000};
  const ChunkScores scores{.classes = 3, .samples = samples, .logits = logits};
  const auto best = best_classes(scores, 0, 3);
  EXPECT_THAT(numbers(best), ElementsAre(0, 2, 1));
  EXPECT_EQ(best[1].probability, best[2].probability);
}

TEST(Confusion, TellsWhatIsTakenForWhat) {
  Confusion confusion({"cat", "dog", "ox"});
  std::vector<SampleScore> samples;
  for (int i = 0; i < 10; ++i) samples.push_back({.label = i < 8 ? 0 : 1, .predicted = i < 5 ? 0 : i < 6 ? 1 : 2});
  const std::vector<float> logits(30);
  confusion.add({.classes = 3, .samples = samples, .logits = logits});
  EXPECT_EQ(confusion.text(),
            "class  images     acc  taken for\n"
            "cat         8  0.6250  ox 2, dog 1\n"
            "dog         2  0.0000  ox 2\n"
            "ox          0       -  \n"
            "\n"
            "is, taken for  0  1  2\n"
            " 0  cat        5  1  2\n"
            " 1  dog        0  0  2\n"
            " 2  ox         0  0  0\n");
}

TEST(Confusion, LeavesTheMatrixAwayWhereItDoesNotFitATerminal) {
  std::vector<std::string> names;
  for (int i = 0; i < 21; ++i) names.push_back(std::to_string(i));
  EXPECT_EQ(Confusion(names).text().find("is, taken for"), std::string::npos);
  names.pop_back();
  EXPECT_THAT(Confusion(names).text(), HasSubstr("is, taken for"));
}

}  // namespace
}  // namespace tutti
