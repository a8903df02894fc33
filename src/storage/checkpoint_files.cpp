// A checkpoint's files: their names, those in a folder, and the manifest that lists them.

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "checkpoint_format.hpp"

#include <nlohmann/json.hpp>

#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Empty unless CheckpointFileName::text() can produce this name.
std::optional<CheckpointFileName> parse_file_name(std::string_view name) {
  constexpr std::string_view kStem = "step-";
  if (!name.starts_with(kStem)) return std::nullopt;
  const char* end = name.data() + name.size();
  CheckpointFileName parsed;
  auto rest = std::from_chars(name.data() + kStem.size(), end, parsed.step);
  if (rest.ec != std::errc() || rest.ptr == end) return std::nullopt;
  std::from_chars(rest.ptr + 1, end, parsed.file);
  parsed.bad = name.ends_with(".bad");
  parsed.is_manifest = name.find(".json") != std::string_view::npos;
  if (parsed.step < 0 || parsed.file < 0 || parsed.text() != name) return std::nullopt;
  return parsed;
}

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Error damage(const char* what) {
  return Error(ErrorSource::checkpoint, fmt::format("it is damaged or truncated: {}", what));
}

// The format version is checked first, since all else may differ between versions.
void refuse_other_formats(std::string_view text) {
  if (!text.starts_with(kManifestStart)) throw damage("it does not begin with its format");
  const std::string_view rest = text.substr(kManifestStart.size());
  std::int64_t version = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), version);
  if (error != std::errc() || version < 0) throw damage("its format is not a number");
  if (const std::string fault = fault_of_format(version, kManifestFormat); !fault.empty()) {
    throw Error(ErrorSource::input, "it " + fault);
  }
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

std::set<std::int64_t> CheckpointListing::complete() const {
  std::set<std::int64_t> steps;
  for (const CheckpointFileName& file : files) {
    if (file.is_manifest && file.file == 0) steps.insert(file.step);
  }
  return steps;
}

CheckpointListing list_checkpoints(const std::string& folder) {
  CheckpointListing listing;
  std::error_code error;
  fs::directory_iterator entry;
  do {
    entry = fs::directory_iterator(folder, error);
  } while (error == std::errc::interrupted);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto file = parse_file_name(name);
    if (file && file->bad) {
      listing.any_bad = true;
    } else if (file) {
      listing.files.push_back(*file);
    } else if (parse_file_name(std::string_view(name).substr(0, name.find(kTemporaryMark)))) {
      listing.temporary.push_back(name);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(ErrorSource::io,
                fmt::format("cannot list '{}': {}; check the path and its permissions", folder, error.message()));
  }
  return listing;
}

std::string manifest_path(const std::string& checkpoint_path) {
  return fs::path(checkpoint_path).replace_extension(".json").string();
}

Manifest manifest_of(const TrainState& state, std::span<const std::byte> contents, std::string sha256,
                     FileShard shard) {
  return {.step = state.progress.step,
          .weights = weights_digest(state),
          .data_digest = state.data_digest,
          .metrics_hash = state.metrics_hash,
          .files = {{.name = checkpoint_file_name(state.progress.step, shard.file),
                     .bytes = std::ssize(contents),
                     .sha256 = std::move(sha256)}}};
}

std::string manifest_text(const Manifest& manifest) {
  std::string text = fmt::format(
      "{}{},\n  \"step\": {},\n  \"weights\": \"{}\",\n  \"data_digest\": \"{}\",\n{}  \"files\": [\n", kManifestStart,
      kManifestFormat, manifest.step, digest_text(manifest.weights), digest_text(manifest.data_digest),
      manifest.metrics_hash.empty() ? "" : fmt::format("  \"metrics_hash\": {},\n", quoted(manifest.metrics_hash)));
  for (const CheckpointFile& file : manifest.files) {
    text += fmt::format("    {{\"file\": {}, \"bytes\": {}, \"sha256\": {}}}{}\n", quoted(file.name), file.bytes,
                        quoted(file.sha256), &file == &manifest.files.back() ? "" : ",");
  }
  return text + "  ]\n}\n";
}

Manifest parse_manifest(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  refuse_other_formats(text);
  if (!text.ends_with("}\n")) throw damage("its end is another");
  try {
    const Json json = Json::parse(text);
    Manifest manifest{.step = integer_in(json, "step"),
                      .weights = digest_in(json, "weights"),
                      .data_digest = digest_in(json, "data_digest"),
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
