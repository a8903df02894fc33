#pragma once
// Markup that is whole by construction: what comes from outside is escaped, and every element is closed. Serves HTML
// and the SVG in it. It knows nothing of which elements may stand where.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

class Html {
 public:
  Html() = default;

  Html& operator+=(const Html& more) {
    markup_ += more.markup_;
    return *this;
  }
  friend Html operator+(Html first, const Html& second) { return std::move(first += second); }

  bool empty() const { return markup_.empty(); }
  const std::string& markup() const { return markup_; }

 private:
  explicit Html(std::string markup) : markup_(std::move(markup)) {}
  friend Html text(std::string_view words);
  friend Html style(const char* rules);
  friend Html open_element(const char* name, const std::vector<std::pair<const char*, std::string>>& attributes);
  friend Html element(const char* name, const std::vector<std::pair<const char*, std::string>>& attributes,
                      const Html& content);

  std::string markup_;
};

using Attributes = std::vector<std::pair<const char*, std::string>>;

// As it will be read; bytes that are no UTF-8, and control characters, show as U+FFFD.
Html text(std::string_view words);
Html element(const char* name, const Attributes& attributes, const Html& content);
// Without attributes, of text alone, of both.
Html element(const char* name, const Html& content);
Html element(const char* name, std::string_view words);
Html element(const char* name, const Attributes& attributes, std::string_view words);
// One that has no content and no end, as meta and img.
Html open_element(const char* name, const Attributes& attributes);
// Rules of our own, as they are.
Html style(const char* rules);

}  // namespace tutti
