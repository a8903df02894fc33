#include "manifest.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include "digest_word.hpp"
#include "format_version.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>

namespace tutti {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormatField = "{\n  \"format_version\": ";
constexpr std::string_view kSealField = "  \"seal\": ";
constexpr std::size_t kCrcDigits = 8;

struct TypeName {
  StoredType type;
  std::string_view name;
};
constexpr std::array kTypeNames{TypeName{StoredType::f32, "f32"}, TypeName{StoredType::f64, "f64"},
                                TypeName{StoredType::i32, "i32"}, TypeName{StoredType::i64, "i64"},
                                TypeName{StoredType::text, "text"}};

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::uint64_t seal_of(std::string_view before) {
  return digest("manifest", std::span(reinterpret_cast<const std::uint8_t*>(before.data()), before.size()));
}

std::string_view name_of(StoredType type) {
  const auto* const found = std::ranges::find(kTypeNames, type, &TypeName::type);
  if (found == kTypeNames.end())
    throw Error(ErrorSource::internal, "an array of a checkpoint is of no type it may have");
  return found->name;
}

void add_array(std::string& text, const StoredArray& array) {
  fmt::format_to(
      std::back_inserter(text),
      R"(        {{"name": {}, "type": "{}", "shape": [{}], "offset": {}, "bytes": {}, "crc32c": "{:08x}"}})",
      quoted(array.name), name_of(array.type), fmt::join(array.shape.extents(), ", "), array.offset, array.bytes,
      array.crc32c);
}

void add_file(std::string& text, const ManifestFile& file) {
  text += fmt::format("    {{\n      \"file\": {},\n      \"bytes\": {},\n      \"sha256\": {},\n      \"arrays\": [\n",
                      quoted(file.file), file.bytes, quoted(file.sha256));
  for (const StoredArray& array : file.arrays) {
    add_array(text, array);
    text += &array == &file.arrays.back() ? "\n" : ",\n";
  }
  text += "      ]\n    }";
}

// Takes a text apart that is as manifest_text() writes it, from front to back. It holds no more than the text does,
// and never goes deeper, whatever the text is.
class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text), rest_(text) {}

  bool finds(std::string_view literal) {
    if (!rest_.starts_with(literal)) return false;
    rest_.remove_prefix(literal.size());
    return true;
  }
  void expect(std::string_view literal) {
    if (!finds(literal)) fail();
  }
  std::int64_t count() {
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) fail();
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  std::string text() {
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"' && rest_[end] != '\n') end += rest_[end] == '\\' ? 2 : 1;
    if (!rest_.starts_with('"') || end >= rest_.size() || rest_[end] != '"') fail();
    const std::string_view word = rest_.substr(0, end + 1);
    rest_.remove_prefix(word.size());
    if (word.find('\\') == std::string_view::npos) return std::string(word.substr(1, end - 1));
    const Json json = Json::parse(word, nullptr, /*allow_exceptions=*/false);
    if (!json.is_string()) fail();
    return json.get<std::string>();
  }
  std::uint64_t digest() {
    const auto value = parse_digest(text());
    if (!value) fail();
    return *value;
  }
  std::string_view rest() const { return rest_; }
  [[noreturn]] void fail() const {
    const auto line = 1 + std::ranges::count(text_.substr(0, text_.size() - rest_.size()), '\n');
    throw Error(ErrorSource::checkpoint, fmt::format("it is damaged: line {} is not as this program writes it", line));
  }

 private:
  std::string_view text_;
  std::string_view rest_;
};

Shape parse_shape(Scan& scan) {
  std::array<std::int64_t, Shape::kMaxRank> extents{};
  std::size_t rank = 0;
  while (!scan.finds("]")) {
    if (rank == extents.size()) scan.fail();
    if (rank > 0) scan.expect(", ");
    extents[rank++] = scan.count();
  }
  try {
    return Shape(std::span<const std::int64_t>(extents).first(rank));
  } catch (const Error&) {  // too many elements
    scan.fail();
  }
}

StoredType parse_type(Scan& scan) {
  const std::string name = scan.text();
  const auto* const found = std::ranges::find(kTypeNames, name, &TypeName::name);
  if (found == kTypeNames.end()) scan.fail();
  return found->type;
}

std::uint32_t parse_crc(Scan& scan) {
  const std::string word = scan.text();
  const auto value = parse_digest(std::string(kCrcDigits, '0') + word);
  if (!value) scan.fail();
  return static_cast<std::uint32_t>(*value);
}

StoredArray parse_array(Scan& scan) {
  StoredArray array;
  scan.expect("        {\"name\": ");
  array.name = scan.text();
  scan.expect(", \"type\": ");
  array.type = parse_type(scan);
  scan.expect(", \"shape\": [");
  array.shape = parse_shape(scan);
  scan.expect(", \"offset\": ");
  array.offset = scan.count();
  scan.expect(", \"bytes\": ");
  array.bytes = scan.count();
  scan.expect(", \"crc32c\": ");
  array.crc32c = parse_crc(scan);
  scan.expect("}");
  return array;
}

ManifestFile parse_file(Scan& scan) {
  ManifestFile file;
  scan.expect("    {\n      \"file\": ");
  file.file = scan.text();
  scan.expect(",\n      \"bytes\": ");
  file.bytes = scan.count();
  scan.expect(",\n      \"sha256\": ");
  file.sha256 = scan.text();
  scan.expect(",\n      \"arrays\": [\n");
  while (!scan.finds("      ]\n    }")) {
    file.arrays.push_back(parse_array(scan));
    if (!scan.finds(",\n")) scan.expect("\n");
  }
  return file;
}

bool is_sealed(std::string_view text) {
  const std::size_t before = std::min(text.rfind(kSealField), text.size());
  return text.substr(before) == fmt::format("{}\"{}\"\n}}\n", kSealField, digest_text(seal_of(text.substr(0, before))));
}

// Of another format is told before anything that formats may differ in; but where the seal fits this program's own, it
// is only the version that is damaged.
void refuse_other_formats(std::string_view text) {
  Scan scan(text);
  scan.expect(kFormatField);
  const std::string fault = fault_of_format(scan.count());
  if (fault.empty() || is_sealed(fmt::format("{}{}{}", kFormatField, kCheckpointFormat, scan.rest()))) return;
  throw Error(ErrorSource::input, "it " + fault);
}

void refuse_broken_seal(std::string_view text) {
  if (is_sealed(text)) return;
  throw Error(ErrorSource::checkpoint, "it is damaged or cut short: its seal is not that of what it says");
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  std::string text = fmt::format(
      "{}{},\n  \"step\": {},\n  \"epoch\": {},\n  \"weights\": \"{}\",\n  \"data_digest\": \"{}\",\n"
      "  \"versions\": {},\n  \"files\": [\n",
      kFormatField, kCheckpointFormat, manifest.step, manifest.epoch, digest_text(manifest.weights),
      digest_text(manifest.data_digest), quoted(manifest.versions));
  for (const ManifestFile& file : manifest.files) {
    add_file(text, file);
    text += &file == &manifest.files.back() ? "\n" : ",\n";
  }
  text += "  ],\n";
  text += fmt::format("{}\"{}\"\n}}\n", kSealField, digest_text(seal_of(text)));
  return text;
}

Manifest parse_manifest(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  refuse_other_formats(text);
  refuse_broken_seal(text);
  Manifest manifest;
  Scan scan(text);
  scan.expect(fmt::format("{}{},\n  \"step\": ", kFormatField, kCheckpointFormat));
  manifest.step = scan.count();
  scan.expect(",\n  \"epoch\": ");
  manifest.epoch = scan.count();
  scan.expect(",\n  \"weights\": ");
  manifest.weights = scan.digest();
  scan.expect(",\n  \"data_digest\": ");
  manifest.data_digest = scan.digest();
  scan.expect(",\n  \"versions\": ");
  manifest.versions = scan.text();
  scan.expect(",\n  \"files\": [\n");
  while (!scan.finds("  ],\n")) {
    manifest.files.push_back(parse_file(scan));
    if (!scan.finds(",\n")) scan.expect("\n");
  }
  // What is left: other spellings of the same.
  if (manifest_text(manifest) != text) {
    throw Error(ErrorSource::checkpoint, "it is damaged: it is not spelt as this program does");
  }
  return manifest;
}

}  // namespace tutti
