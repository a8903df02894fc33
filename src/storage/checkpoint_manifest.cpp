#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include "checkpoint_format.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormatField = "{\n  \"format_version\": ";
constexpr std::string_view kSealField = "  \"seal\": ";

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Error damage(const char* what) {
  return Error(ErrorSource::checkpoint, fmt::format("it is damaged or truncated: {}", what));
}

std::string seal_line(std::string_view before) {
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(before.data()), before.size());
  return fmt::format("{}\"{}\"\n}}\n", kSealField, digest_text(digest("manifest", bytes)));
}

bool is_sealed(std::string_view text) {
  const std::size_t before = std::min(text.rfind(kSealField), text.size());
  return text.substr(before) == seal_line(text.substr(0, before));
}

// The format version is checked first, since all else may differ between versions. If the seal is valid once the number
// is replaced by this program's version, only the number is damaged.
void refuse_other_formats(std::string_view text) {
  if (!text.starts_with(kFormatField)) throw damage("it does not begin with its format");
  const std::string_view rest = text.substr(kFormatField.size());
  std::int64_t version = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), version);
  if (error != std::errc() || version < 0) throw damage("its format is not a number");
  const std::string fault = fault_of_format(version);
  const auto digits = static_cast<std::size_t>(end - rest.data());
  if (fault.empty() || is_sealed(fmt::format("{}{}{}", kFormatField, kCheckpointFormat, rest.substr(digits)))) return;
  throw Error(ErrorSource::input, "it " + fault);
}

std::uint64_t digest_in(const Json& json, const char* field) {
  const auto digest = parse_digest(json.at(field).get<std::string>());
  if (!digest) throw damage("a digest in it is not 16 hexadecimal digits");
  return *digest;
}

// JSON integers above 64 bits are parsed as floats, whose conversion is undefined.
std::int64_t integer_in(const Json& json, const char* field) {
  const Json& value = json.at(field);
  if (!value.is_number_integer()) throw damage("a number in it is not an integer of 64 bits");
  return value.get<std::int64_t>();
}

}  // namespace

Manifest manifest_of(const TrainState& state, std::span<const std::byte> contents, std::string sha256,
                     FileShard shard) {
  return {.step = state.progress.step,
          .epoch = state.progress.epoch,
          .weights = weights_digest(state),
          .data_digest = state.data_digest,
          .versions = state.versions,
          .metrics_hash = state.metrics_hash,
          .files = {{.name = checkpoint_file_name(state.progress.step, shard.file),
                     .bytes = std::ssize(contents),
                     .sha256 = std::move(sha256)}}};
}

std::string manifest_text(const Manifest& manifest) {
  std::string text = fmt::format(
      "{}{},\n  \"step\": {},\n  \"epoch\": {},\n  \"weights\": \"{}\",\n  \"data_digest\": \"{}\",\n"
      "  \"versions\": {},\n{}  \"files\": [\n",
      kFormatField, kCheckpointFormat, manifest.step, manifest.epoch, digest_text(manifest.weights),
      digest_text(manifest.data_digest), quoted(manifest.versions),
      manifest.metrics_hash.empty() ? "" : fmt::format("  \"metrics_hash\": {},\n", quoted(manifest.metrics_hash)));
  for (const CheckpointFile& file : manifest.files) {
    text += fmt::format("    {{\"file\": {}, \"bytes\": {}, \"sha256\": {}}}{}\n", quoted(file.name), file.bytes,
                        quoted(file.sha256), &file == &manifest.files.back() ? "" : ",");
  }
  text += "  ],\n";
  return text + seal_line(text);
}

Manifest parse_manifest(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  refuse_other_formats(text);
  if (!is_sealed(text)) throw damage("its seal does not match its text");
  try {
    const Json json = Json::parse(text);
    Manifest manifest{.step = integer_in(json, "step"),
                      .epoch = integer_in(json, "epoch"),
                      .weights = digest_in(json, "weights"),
                      .data_digest = digest_in(json, "data_digest"),
                      .versions = json.at("versions").get<std::string>(),
                      .metrics_hash = json.value("metrics_hash", ""),
                      .files = {}};
    for (const Json& file : json.at("files")) {
      manifest.files.push_back({.name = file.at("file").get<std::string>(),
                                .bytes = integer_in(file, "bytes"),
                                .sha256 = file.at("sha256").get<std::string>()});
    }
    return manifest;
  } catch (const Json::exception&) {
    throw damage("its fields are not those of a manifest");
  }
}

}  // namespace tutti
