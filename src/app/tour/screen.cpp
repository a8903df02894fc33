#include "screen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <sstream>

namespace tutti {
namespace {

constexpr std::string_view kBetween = "  ";

// Characters, not bytes: names may have others than ASCII.
bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

std::string_view cut(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    if (!begins_character(text[end])) continue;
    if (columns == 0) break;
    --columns;
  }
  return text.substr(0, end);
}

std::string padded(std::string_view text, std::size_t columns) {
  return std::string(text) + std::string(columns - std::min(columns, width_of(text)), ' ');
}

}  // namespace

void Screen::say(std::string_view prose) {
  std::istringstream words{std::string(prose)};
  std::string row;
  for (std::string word; words >> word;) {
    if (!row.empty() && width_of(row) + 1 + width_of(word) > kColumns) {
      line(row);
      row.clear();
    }
    row += (row.empty() ? "" : " ") + word;
  }
  if (!row.empty()) line(row);
}

void Screen::line(std::string_view text) {
  std::string_view kept = cut(text, kColumns);
  kept = kept.substr(0, kept.find_last_not_of(' ') + 1);
  text_ += fmt::format("{}\n", kept);
}

void Screen::side_by_side(const std::vector<std::vector<std::string>>& blocks) {
  std::size_t width = 0;
  std::size_t height = 0;
  for (const auto& block : blocks) {
    height = std::max(height, block.size());
    for (const std::string& row : block) width = std::max(width, width_of(row));
  }
  const std::size_t abreast = std::max<std::size_t>(1, (kColumns + kBetween.size()) / (width + kBetween.size()));
  for (std::size_t first = 0; first < blocks.size(); first += abreast) {
    if (first > 0) blank();
    for (std::size_t row = 0; row < height; ++row) {
      std::string text;
      for (std::size_t i = first; i < std::min(first + abreast, blocks.size()); ++i) {
        text += padded(row < blocks[i].size() ? blocks[i][row] : "", width);
        text += kBetween;
      }
      line(text);
    }
  }
}

std::string ToldRanks::text() const {
  return is_one() ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, end - 1);
}

std::vector<ToldRanks> told_ranks(int ranks, int lines) {
  std::vector<ToldRanks> told;
  const int of_their_own = ranks <= lines ? ranks : lines - 2;
  for (int rank = 0; rank < of_their_own; ++rank) told.push_back({rank, rank + 1});
  if (of_their_own == ranks) return told;
  told.push_back({of_their_own, ranks - 1});
  told.push_back({ranks - 1, ranks});
  return told;
}

}  // namespace tutti
