#pragma once
// HTML as strictly read as XML: every element is closed by its own name, every attribute quoted, every & an entity. For
// tests that look at what a page shows.

#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct MarkupNode {
  std::string name;  // empty: text
  std::map<std::string, std::string> attributes{};
  std::string text{};  // its own, and that of all within it
  std::vector<MarkupNode> children{};

  std::string attribute(const std::string& key) const {
    const auto found = attributes.find(key);
    return found != attributes.end() ? found->second : "";
  }
  // All elements of that name within this one, in the order of the page.
  std::vector<const MarkupNode*> all(const std::string& wanted) const {
    std::vector<const MarkupNode*> found;
    for (const MarkupNode& child : children) {
      if (child.name == wanted) found.push_back(&child);
      const auto deeper = child.all(wanted);
      found.insert(found.end(), deeper.begin(), deeper.end());
    }
    return found;
  }
  // The one of that id.
  const MarkupNode& by_id(const std::string& id) const {
    for (const MarkupNode& child : children) {
      if (child.attribute("id") == id) return child;
      if (const MarkupNode* deeper = child.find_id(id)) return *deeper;
    }
    throw std::runtime_error("nothing has the id " + id);
  }
  // The words of a table's rows, cell by cell, the head's included.
  std::vector<std::vector<std::string>> rows() const {
    std::vector<std::vector<std::string>> words;
    for (const MarkupNode* row : all("tr")) {
      words.emplace_back();
      for (const MarkupNode& cell : row->children) words.back().push_back(cell.text);
    }
    return words;
  }

 private:
  const MarkupNode* find_id(const std::string& id) const {
    for (const MarkupNode& child : children) {
      if (child.attribute("id") == id) return &child;
      if (const MarkupNode* deeper = child.find_id(id)) return deeper;
    }
    return nullptr;
  }
};

class MarkupReader {
 public:
  explicit MarkupReader(std::string_view page) : rest_(page) {}

  // The page's one element. Throws std::runtime_error that says what is wrong, and where.
  MarkupNode read() {
    take("<!DOCTYPE html>\n");
    MarkupNode root = element();
    take("\n");
    if (!rest_.empty()) fail("something follows the page's element");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(what + " at: " + std::string(rest_.substr(0, 60)));
  }
  bool begins(std::string_view word) const { return rest_.starts_with(word); }
  void take(std::string_view word) {
    if (!begins(word)) fail("no '" + std::string(word) + "'");
    rest_.remove_prefix(word.size());
  }
  std::string until(std::string_view ends) {
    const std::size_t at = rest_.find_first_of(ends);
    if (at == rest_.npos) fail("the page ends too early");
    std::string word(rest_.substr(0, at));
    rest_.remove_prefix(at);
    return word;
  }

  static std::string decoded(std::string_view words) {
    static const std::map<std::string_view, char> kEntities{
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&#39;", '\''}};
    std::string text;
    while (!words.empty()) {
      const std::string_view entity = words.substr(0, words.find(';') + 1);
      if (words.front() != '&') {
        text += words.front();
        words.remove_prefix(1);
      } else if (kEntities.contains(entity)) {
        text += kEntities.at(entity);
        words.remove_prefix(entity.size());
      } else {
        throw std::runtime_error("an & that is no entity in: " + std::string(words.substr(0, 40)));
      }
    }
    return text;
  }

  MarkupNode element() {
    static const std::set<std::string> kOpen{"meta", "link", "img"};
    take("<");
    MarkupNode node{.name = until(" >")};
    if (node.name.empty() || node.name.find_first_of("<\"'/") != node.name.npos) fail("no name of an element");
    while (begins(" ")) {
      take(" ");
      const std::string key = until("=> ");
      take("=\"");
      if (!node.attributes.emplace(key, decoded(until("\""))).second) fail(key + " twice");
      take("\"");
    }
    take(">");
    if (kOpen.contains(node.name)) return node;
    if (node.name == "style") {
      node.text = rest_.substr(0, rest_.find("</style>"));
      rest_.remove_prefix(node.text.size());
    }
    while (!begins("</")) {
      node.children.push_back(begins("<") ? element() : words());
      node.text += node.children.back().text;
    }
    take("</" + node.name + ">");
    return node;
  }

  MarkupNode words() {
    const std::string raw = until("<");
    if (raw.find('>') != raw.npos || raw.find('"') != raw.npos) fail("markup within text: " + raw);
    return {.name = "", .text = decoded(raw)};
  }

  std::string_view rest_;
};

inline MarkupNode read_markup(const std::string& page) { return MarkupReader(page).read(); }

}  // namespace tutti
