#include "page.hpp"

#include "tutti/base/version.hpp"

#include "page_style.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

Html head_of(const RunHistory& history) {
  // The page says itself that it needs nothing from elsewhere, and browsers keep it to that.
  constexpr const char* kPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
  return element("head", open_element("meta", {{"charset", "utf-8"}}) +
                             open_element("meta", {{"http-equiv", "Content-Security-Policy"}, {"content", kPolicy}}) +
                             open_element("meta", {{"name", "viewport"}, {"content", "width=device-width"}}) +
                             open_element("meta", {{"name", "color-scheme"}, {"content", "light dark"}}) +
                             open_element("link", {{"rel", "icon"}, {"href", "data:,"}}) +
                             element("title", headline(history)) + style(kPageStyle));
}

Html contents() {
  Html links;
  for (const auto& [id, name] :
       {std::pair("curves", "How it learned"), std::pair("classes", "Classes"), std::pair("mistakes", "Mistakes"),
        std::pair("time", "Time"), std::pair("events", "What happened"), std::pair("record", "What ran")}) {
    links += element("a", {{"href", fmt::format("#{}", id)}}, name);
  }
  return element("nav", links);
}

bool is_figure(const std::string& cell) {
  return cell.find_first_not_of("0123456789.,-+e<> %") == std::string::npos && !cell.empty();
}

}  // namespace

Html section_of(const char* id, const char* title, const Html& content) {
  return element("section", {{"id", id}}, element("h2", title) + content);
}

Html paragraph(std::string_view words) { return element("p", words); }

Html absence(std::string_view reason) { return element("p", {{"class", "none"}}, reason); }

Html table_of(const Row& head, const std::vector<Row>& rows) {
  Html names;
  Html body;
  for (std::size_t column = 0; column < head.size(); ++column) {
    const bool is_number = std::ranges::all_of(rows, [&](const Row& row) { return is_figure(row[column]); });
    names += element("th", {{"class", is_number ? "figure" : ""}}, head[column]);
  }
  for (const Row& row : rows) {
    Html cells;
    for (const std::string& cell : row) cells += element("td", {{"class", is_figure(cell) ? "figure" : ""}}, cell);
    body += element("tr", cells);
  }
  const bool is_headed = std::ranges::any_of(head, [](const std::string& name) { return !name.empty(); });
  const Html above = is_headed ? element("thead", element("tr", names)) : Html();
  return element("div", {{"class", "wide"}}, element("table", above + element("tbody", body)));
}

Html folded(std::string_view title, const Html& content) {
  return element("details", element("summary", title) + content);
}

std::string report_page(const RunHistory& history, const ScoresOrReason& scores) {
  const Html footer = element("footer", fmt::format("Written by tutti {} from {}; the records' last change: {}.",
                                                    version(), history.folder, history.date));
  const Html body = element("body", element("main", heading_of(history) + contents() + curves_of(history) +
                                                        classes_of(scores) + pictures_of(scores) + times_of(history) +
                                                        events_of(history) + record_of(history) + footer));
  return "<!DOCTYPE html>\n" + element("html", {{"lang", "en"}}, head_of(history) + body).markup() + "\n";
}

}  // namespace tutti
