#pragma once
// One file over HTTP or HTTPS, handed over in pieces as they come. What stands behind it is libcurl, opened when it is
// asked for; a build without libcurl says so instead.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace tutti {

struct Download {
  std::string url;
  std::int64_t from = 0;                                 // so many bytes of its beginning are left out
  std::function<void(std::span<const std::byte>)> take;  // what it throws ends the download
};

enum class DownloadEnd {
  complete,    // all that the server has
  broken_off,  // some of it came, or the server fell silent: going on later may help
  no_ranges,   // the server cannot leave out the beginning
  refused,     // no such file, no such server, no network, no library
};

struct DownloadResult {
  DownloadEnd end = DownloadEnd::complete;
  std::string reason{};  // where it is not complete
};

// Goes where a server sends it on to, and through a proxy that the environment names (https_proxy). Returns at the
// latest when nothing has come for a minute. Throws what `take` threw.
DownloadResult download(const Download& request);

}  // namespace tutti
