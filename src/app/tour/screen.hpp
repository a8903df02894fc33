#pragma once
// The text of one station: prose that is wrapped, lines that are cut, at most kColumns wide on any number of ranks.

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class Screen {
 public:
  static constexpr std::size_t kColumns = 100;
  static constexpr int kLines = 24;

  // Words of any length, wrapped.
  void say(std::string_view prose);
  // A line as it is; what is too wide is cut.
  void line(std::string_view text);
  void blank() { text_ += '\n'; }
  // Blocks of lines side by side, as many abreast as there is room for.
  void side_by_side(const std::vector<std::vector<std::string>>& blocks);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Of ranks that are told of line by line: one, or some for which there is no line of their own.
struct ToldRanks {
  int first = 0;
  int end = 1;

  bool is_one() const { return end - first == 1; }
  std::string text() const;  // "rank 3", "ranks 4 to 14"
};
// For so many lines, 3 or more: all ranks, or the first ones and the last, and those between together.
std::vector<ToldRanks> told_ranks(int ranks, int lines);

}  // namespace tutti
