#include "manifest.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include "digest_word.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kFormatVersion = 1;
constexpr std::size_t kFields = 6;

Error fault(const std::string& text) { return Error(ErrorSource::checkpoint, text); }

const Json& field(const Json& manifest, const char* name) {
  const auto found = manifest.find(name);
  if (found == manifest.end()) throw fault(fmt::format("its manifest lacks \"{}\"", name));
  return *found;
}

std::int64_t count(const Json& manifest, const char* name) {
  const Json& value = field(manifest, name);
  const bool possible = value.is_number_unsigned() &&
                        value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (!possible) throw fault(fmt::format("\"{}\" in its manifest is no count", name));
  return value.get<std::int64_t>();
}

std::string text(const Json& manifest, const char* name) {
  const Json& value = field(manifest, name);
  if (!value.is_string()) throw fault(fmt::format("\"{}\" in its manifest is no text", name));
  return value.get<std::string>();
}

}  // namespace

std::uint64_t image_digest(std::span<const std::byte> image) {
  return digest("image", std::span(reinterpret_cast<const std::uint8_t*>(image.data()), image.size()));
}

std::string manifest_text(const Manifest& manifest) {
  const Json json{{"format_version", kFormatVersion},       {"file", manifest.file}, {"bytes", manifest.bytes},
                  {"digest", digest_text(manifest.digest)}, {"step", manifest.step}, {"epoch", manifest.epoch}};
  return json.dump(2) + "\n";
}

Manifest parse_manifest(std::span<const std::byte> bytes) {
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  const Json json = Json::parse(begin, begin + bytes.size(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw fault("its manifest is not JSON as this program writes it");
  if (const std::int64_t version = count(json, "format_version"); version != kFormatVersion) {
    throw fault(fmt::format("its manifest has format version {}; this program reads {}", version, kFormatVersion));
  }
  Manifest manifest{.file = text(json, "file"),
                    .bytes = count(json, "bytes"),
                    .digest = 0,
                    .step = count(json, "step"),
                    .epoch = count(json, "epoch")};
  const auto digest = parse_digest(text(json, "digest"));
  if (!digest) throw fault("\"digest\" in its manifest is not 16 hexadecimal digits");
  if (json.size() != kFields) throw fault(fmt::format("its manifest has {} fields, not {}", json.size(), kFields));
  manifest.digest = *digest;
  return manifest;
}

}  // namespace tutti
