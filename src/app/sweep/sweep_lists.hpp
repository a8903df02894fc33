#pragma once
// The lists of a sweep, taken apart: which options have several values, and which of them are walked together.

#include "../command_line.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

inline constexpr const char* kRanks = "ranks";

struct SweptOption {
  std::string name;
  std::vector<std::string> values;  // one or more
};

// Positions of options that are walked item by item; their lists are as long.
using Walk = std::vector<std::size_t>;

class SweepLists {
 public:
  // For a launch of so many ranks, on which all train unless told otherwise. Throws usage errors.
  SweepLists(const SweepRequest& request, int ranks);

  // In the order of the table of options, ranks last.
  const std::vector<SweptOption>& options() const { return options_; }
  // Null: it has no list.
  const SweptOption* find(std::string_view name) const;
  // What is crossed; that of the ranks is the last.
  const std::vector<Walk>& walks() const { return walks_; }
  std::size_t length(const Walk& walk) const { return options_[walk.front()].values.size(); }
  // Every count of ranks meets every combination of all else.
  bool crosses_ranks() const { return walks_.back().size() == 1 && options_.back().values.size() > 1; }

 private:
  void join(const std::string& names);
  void refuse_doubles() const;
  void refuse_ranks(int all) const;

  std::vector<SweptOption> options_;
  std::vector<Walk> walks_;
};

// What has to be the same on all ranks, in one line.
std::string sweep_text(const SweepRequest& request);

}  // namespace tutti
