#include "html.hpp"

#include "tutti/base/utf8.hpp"

namespace tutti {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string escaped(std::string_view words) {
  const bool is_text = is_utf8(words);
  std::string safe;
  for (const char c : words) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_space = c == '\t' || c == '\n' || c == '\r';
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else if (c == '\'') {
      safe += "&#39;";
    } else if ((byte < ' ' && !is_space) || byte == 0x7F || (byte > 0x7F && !is_text)) {
      safe += kReplacement;
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string opening(const char* name, const Attributes& attributes) {
  std::string markup = std::string("<") + name;
  for (const auto& [key, value] : attributes) markup += std::string(" ") + key + "=\"" + escaped(value) + "\"";
  return markup + ">";
}

}  // namespace

Html text(std::string_view words) { return Html(escaped(words)); }

Html element(const char* name, const Attributes& attributes, const Html& content) {
  return Html(opening(name, attributes) + content.markup() + "</" + name + ">");
}

Html element(const char* name, const Html& content) { return element(name, {}, content); }

Html element(const char* name, std::string_view words) { return element(name, {}, text(words)); }

Html element(const char* name, const Attributes& attributes, std::string_view words) {
  return element(name, attributes, text(words));
}

Html open_element(const char* name, const Attributes& attributes) { return Html(opening(name, attributes)); }

Html style(const char* rules) { return Html(std::string("<style>") + rules + "</style>"); }

}  // namespace tutti
