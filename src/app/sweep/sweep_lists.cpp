#include "sweep_lists.hpp"

#include "tutti/base/error.hpp"

#include "../option_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pieces;
}

// These are given again for another value.
bool has_commas_in_values(std::string_view option) {
  return option == "part-map" || option == "lr-period" || option == "normalize";
}

SweptOption swept(const std::string& name, const std::vector<std::string>& words) {
  SweptOption option{.name = name, .values = {}};
  for (const std::string& word : words) {
    for (std::string& value : has_commas_in_values(name) ? std::vector{word} : pieces_of(word)) {
      if (value.empty()) {
        throw Error(ErrorSource::usage, fmt::format("--{} '{}': a value is empty; give them as 1,2,4", name, word));
      }
      option.values.push_back(std::move(value));
    }
  }
  return option;
}

int count_of_ranks(const std::string& text, int all) {
  int count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, count);
  if (status == std::errc{} && rest == end && count >= 1 && count <= all) return count;
  throw Error(
      ErrorSource::usage,
      fmt::format("--ranks {}: this launch has {}, so give counts of 1 to {}, or start it with more", text, all, all));
}

}  // namespace

SweepLists::SweepLists(const SweepRequest& request, int ranks) {
  const auto add = [&](const std::string& name) {
    const auto words = request.words.find(name);
    if (words != request.words.end() && !words->second.empty()) options_.push_back(swept(name, words->second));
  };
  RunConfig any;
  for (const RunOption& option : run_options(any)) add(option.name);
  add(kRanks);
  if (options_.empty() || options_.back().name != kRanks) options_.push_back({kRanks, {fmt::format("{}", ranks)}});
  for (std::size_t i = 0; i < options_.size(); ++i) walks_.push_back({i});
  for (const std::string& names : request.together) join(names);
  std::erase_if(walks_, [](const Walk& walk) { return walk.empty(); });
  refuse_doubles();
  refuse_ranks(ranks);
}

const SweptOption* SweepLists::find(std::string_view name) const {
  const auto found = std::ranges::find(options_, name, &SweptOption::name);
  return found == options_.end() ? nullptr : &*found;
}

// The walk comes where the last of its lists does.
void SweepLists::join(const std::string& names) {
  Walk joined;
  for (const std::string& name : pieces_of(names)) {
    const auto place =
        static_cast<std::size_t>(std::ranges::find(options_, name, &SweptOption::name) - options_.begin());
    if (place == options_.size() || options_[place].values.size() < 2 || walks_[place] != Walk{place}) {
      throw Error(ErrorSource::usage,
                  fmt::format("--together {}: '{}' has no list of its own here: name options that were given several "
                              "values, each once, as ranks,batch-size",
                              names, name));
    }
    walks_[place].clear();
    joined.push_back(place);
  }
  for (const std::size_t place : joined) {
    const SweptOption& first = options_[joined.front()];
    const SweptOption& other = options_[place];
    if (other.values.size() == first.values.size()) continue;
    throw Error(ErrorSource::usage,
                fmt::format("--together {}: --{} has {} values and --{} has {}: give them as many", names, first.name,
                            first.values.size(), other.name, other.values.size()));
  }
  walks_[std::ranges::max(joined)] = joined;
}

void SweepLists::refuse_doubles() const {
  for (const Walk& walk : walks_) {
    if (walk.size() > 1) continue;
    const SweptOption& option = options_[walk.front()];
    for (auto value = option.values.begin(); value != option.values.end(); ++value) {
      if (std::find(option.values.begin(), value, *value) == value) continue;
      throw Error(ErrorSource::usage, fmt::format("--{} has {} twice", option.name, *value));
    }
  }
}

void SweepLists::refuse_ranks(int all) const {
  int last = 0;
  for (const std::string& value : options_.back().values) {
    const int count = count_of_ranks(value, all);
    if (crosses_ranks() && count <= last) {
      throw Error(ErrorSource::usage,
                  fmt::format("--ranks {}: give ascending counts, as 1,2,4", fmt::join(options_.back().values, ",")));
    }
    last = count;
  }
}

std::string sweep_text(const SweepRequest& request) {
  std::string text = fmt::format("scale-lr {}, together {}", request.scale_lr, fmt::join(request.together, " "));
  for (const auto& [option, words] : request.words) {
    if (!words.empty()) text += fmt::format(", {} {}", option, fmt::join(words, " "));
  }
  std::ranges::replace(text, '\n', ' ');
  return text;
}

}  // namespace tutti
