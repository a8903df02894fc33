#include "tutti/data/unpack.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include "tar_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

namespace tutti {
namespace {

constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;

[[noreturn]] void refuse(const std::string& archive, const std::string& reason) {
  throw Error(ErrorSource::input, fmt::format("'{}' cannot be unpacked: {}", archive, reason));
}

void write_member(TarReader& tar, const std::string& target, std::vector<std::uint8_t>& room) {
  WholeFile file(target);
  while (const std::size_t got = tar.read_some(room)) file.append(std::as_bytes(std::span(room).first(got)));
  file.keep();
}

}  // namespace

void unpack(const std::string& archive, const std::vector<PackedFile>& files, const std::string& folder) {
  TarReader tar(archive);
  std::vector<std::uint8_t> room(kBytesAtOnce);
  std::vector<PackedFile> missing = files;
  while (const auto member = tar.next()) {
    const auto wanted = std::ranges::find(files, member->path, &PackedFile::path);
    if (wanted == files.end()) continue;
    if (std::erase_if(missing, [&](const PackedFile& file) { return file.path == member->path; }) == 0) {
      refuse(archive, fmt::format("it holds '{}' twice", member->path));
    }
    if (member->bytes > wanted->most_bytes) {
      refuse(archive, fmt::format("'{}' has {} bytes, more than the {} that it may have", member->path, member->bytes,
                                  wanted->most_bytes));
    }
    const std::filesystem::path name = std::filesystem::path(member->path).filename();
    write_member(tar, (std::filesystem::path(folder) / name).string(), room);
  }
  if (!missing.empty()) refuse(archive, fmt::format("it lacks '{}'", missing.front().path));
}

}  // namespace tutti
