#pragma once
// Tables of comma-separated values: fields quoted where they hold separators, lines ended by LF or CRLF.

#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct CsvRow {
  std::vector<std::string> fields;
  std::int64_t line = 0;
};

[[noreturn]] inline void refuse_line(const std::string& path, std::int64_t line, const std::string& reason) {
  throw Error(ErrorSource::input, fmt::format("{}:{}: {}", path, line, reason));
}

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& path, char separator = ',')
      : rest_(text), path_(path), separator_(separator) {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);  // a byte order mark
  }

  // The next line that is not empty; at the end, a row without fields.
  CsvRow next() {
    while (!rest_.empty()) {
      CsvRow row{{}, line_};
      do row.fields.push_back(read_field());
      while (take(separator_));
      take('\r');
      if (!rest_.empty() && !take('\n')) refuse_line(path_, row.line, "something follows a quoted field");
      ++line_;
      if (row.fields.size() > 1 || !row.fields.front().empty()) return row;
    }
    return {{}, line_};
  }

 private:
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::string read_field() {
    if (take('"')) return read_quoted();
    const std::size_t end = std::min({rest_.find(separator_), rest_.find('\n'), rest_.size()});
    std::string field(rest_.substr(0, end));
    rest_.remove_prefix(end);
    if (field.ends_with('\r') && !rest_.starts_with(separator_)) field.pop_back();
    return field;
  }

  // A quote inside the field is doubled.
  std::string read_quoted() {
    const std::int64_t start = line_;
    std::string field;
    while (true) {
      const std::size_t end = rest_.find('"');
      if (end == std::string_view::npos) refuse_line(path_, start, "a quoted field never ends");
      field += rest_.substr(0, end);
      line_ += std::count(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(end), '\n');
      rest_.remove_prefix(end + 1);
      if (!take('"')) return field;
      field += '"';
    }
  }

  std::string_view rest_;
  const std::string& path_;
  char separator_;
  std::int64_t line_ = 1;
};

// Whether the first line of a table of images names its columns.
inline bool is_header(const CsvRow& row) {
  constexpr std::array<std::string_view, 8> kWords{"file",  "filename", "file_name", "id",
                                                   "image", "image_id", "name",      "path"};
  return std::ranges::find(kWords, in_lower_case(row.fields.front())) != kWords.end();
}

}  // namespace tutti
