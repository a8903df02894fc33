#pragma once
// Where rows of text go: to stdout as they come, or to a file that appears whole or not at all.

#include "tutti/storage/whole_file.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace tutti {

inline constexpr std::string_view kStdout = "-";

class TextOutlet {
 public:
  // "-" is stdout. All functions throw save errors that name the file.
  explicit TextOutlet(const std::string& path);

  void append(std::string_view text);
  void finish();

 private:
  void hand_over();

  std::optional<WholeFile> file_;
  std::string waiting_;
};

}  // namespace tutti
