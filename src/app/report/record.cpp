#include "../option_table.hpp"
#include "../several.hpp"
#include "sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

namespace tutti {
namespace {

std::string readable(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

// A column for the start, and one for each resume.
Html table_of_starts(const RunHistory& history) {
  std::vector<std::string> names;
  Row head{""};
  for (const RunStart& start : history.starts) {
    head.push_back(head.size() == 1 ? "start" : fmt::format("went on at step {}", start.step));
    for (const std::string& name : start.facts | std::views::keys) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  std::vector<Row> rows;
  for (const std::string& name : names) {
    Row row{readable(name)};
    for (const RunStart& start : history.starts) row.push_back(start.fact(name));
    rows.push_back(row);
  }
  return element("div", {{"class", "facts"}}, table_of(head, rows));
}

Html chosen(const RunHistory& history) {
  std::string lines;
  for (const std::string& option : chosen_options(history.options_text)) lines += option + "\n";
  if (lines.empty()) return paragraph("All options are as they are when nobody chooses them.");
  return element("h3", "Options that are not the default") + element("pre", lines);
}

}  // namespace

Html record_of(const RunHistory& history) {
  Html content =
      history.starts.empty() ? absence("metrics.jsonl holds no record of what ran.") : table_of_starts(history);
  if (history.options_text.empty()) {
    content += absence("There is no config.toml in the folder, so that the options are not known.");
  } else {
    content += chosen(history) + folded("All options (config.toml)", element("pre", history.options_text));
  }
  if (history.end) {
    std::vector<Row> rows;
    for (const auto& [name, value] : *history.end) rows.push_back({name, value});
    content += element("h3", "exit.json") + element("div", {{"class", "facts"}}, table_of({"", ""}, rows));
  }
  return section_of("record", "What ran", content);
}

}  // namespace tutti
