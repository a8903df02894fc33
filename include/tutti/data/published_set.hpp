#pragma once
// Data sets that everybody uses: where in the network they are published, and what bytes their files have. Nothing is
// fetched here.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct PublishedFile {
  std::string name;
  std::int64_t bytes = 0;
  std::string sha256{};  // empty: its archive alone vouches for it, and `bytes` are the most that it may have
};

struct PublishedSet {
  std::string name;
  std::vector<std::string> places;       // URLs to which a file's name is added
  std::vector<PublishedFile> downloads;  // the same at every place
  std::string packed_in{};               // folder inside the one download, an archive; empty: it is not unpacked
  std::vector<PublishedFile> files;      // what a folder of this set holds: the downloads, or what is unpacked
};

// Those that trainer data fetch brings; the last one is made of another (small_set.hpp).
inline constexpr std::array<std::string_view, 4> kFetchedNames{"mnist", "fashion-mnist", "cifar10", "cifar10-tiny"};

// Throws a usage error that lists the names.
PublishedSet published_set(std::string_view name);

}  // namespace tutti
