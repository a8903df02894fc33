#include "fetched_file.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/sha256.hpp"
#include "tutti/storage/partial_file.hpp"
#include "tutti/storage/whole_file.hpp"

#include "download.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <span>

namespace tutti {
namespace {

constexpr int kMostBreaks = 20;  // of the connection to one place, with something new each time

std::string sha256_of(const std::string& path) { return sha256_text(read_whole(path)); }

// What was sent is not what is published; nothing that came of it may stay.
struct OtherFile {
  std::string reason;
};

class FileFetch {
 public:
  FileFetch(const PublishedFile& file, const std::string& path, const FetchWatch& watch)
      : file_(file), watch_(watch), part_(path) {
    if (part_.bytes() > file.bytes) part_.clear();
    if (part_.bytes() > 0) {
      watch_.note(fmt::format("going on with '{}', {} of {} bytes", part_.temporary(), part_.bytes(), file.bytes));
    }
  }

  // Empty when the file is there, else why this place did not serve.
  std::string from(const std::string& place) {
    const bool had_older_bytes = part_.bytes() > 0;
    const std::string reason = attempt(place);
    return had_older_bytes && part_.bytes() == 0 ? attempt(place) : reason;
  }

 private:
  std::string attempt(const std::string& place) {
    try {
      const std::string reason = fill(place + file_.name);
      if (part_.bytes() < file_.bytes) return reason;
      accept();
      return {};
    } catch (const OtherFile& other) {
      part_.clear();
      return other.reason;
    }
  }

  // Returns why not all is there.
  std::string fill(const std::string& url) {
    std::string reason;
    for (int breaks = 0; part_.bytes() < file_.bytes && breaks < kMostBreaks; ++breaks) {
      const std::int64_t before = part_.bytes();
      const DownloadResult result =
          download({.url = url, .from = before, .take = [this](std::span<const std::byte> bytes) { take(bytes); }});
      reason = result.reason;
      if (result.end == DownloadEnd::complete && part_.bytes() < file_.bytes) {
        throw OtherFile{fmt::format("it sent {} bytes instead of {}", part_.bytes(), file_.bytes)};
      }
      if (result.end == DownloadEnd::no_ranges && before > 0) {
        part_.clear();
      } else if (result.end != DownloadEnd::broken_off || part_.bytes() == before) {
        break;
      } else if (part_.bytes() < file_.bytes) {
        watch_.note(fmt::format("{}: {}; going on from byte {}", url, reason, part_.bytes()));
      }
    }
    return reason;
  }

  void take(std::span<const std::byte> bytes) {
    if (static_cast<std::int64_t>(bytes.size()) > file_.bytes - part_.bytes()) {
      throw OtherFile{fmt::format("it sends more than {} bytes", file_.bytes)};
    }
    part_.append(bytes);
    watch_.progress(part_.bytes());
  }

  void accept() {
    if (const std::string found = sha256_of(part_.temporary()); found != file_.sha256) {
      throw OtherFile{fmt::format("what came has the SHA-256 {} instead of {}", found, file_.sha256)};
    }
    part_.keep();
  }

  const PublishedFile& file_;
  const FetchWatch& watch_;
  PartialFile part_;
};

}  // namespace

FileState state_of(const std::string& path, const PublishedFile& file) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return FileState::missing;
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path, unknown));
  if (unknown) return FileState::other;
  if (file.sha256.empty()) return bytes <= file.bytes ? FileState::right : FileState::other;
  return bytes == file.bytes && sha256_of(path) == file.sha256 ? FileState::right : FileState::other;
}

std::string fetch_file(const PublishedFile& file, const std::vector<std::string>& places, const std::string& folder,
                       const FetchWatch& watch) {
  FileFetch fetch(file, fmt::format("{}/{}", folder, file.name), watch);
  std::vector<std::string> reasons;
  for (const std::string& place : places) {
    const std::string reason = fetch.from(place);
    if (reason.empty()) return place;
    reasons.push_back(fmt::format("{}: {}", place, reason));
  }
  throw Error(ErrorSource::io, fmt::format("cannot fetch {}: {}", file.name, fmt::join(reasons, "; ")));
}

}  // namespace tutti
