#pragma once
// One published file out of the network: from the first place that gives it, going on where an earlier attempt broke
// off, and accepted only when its bytes are those that are published.

#include "tutti/data/published_set.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti {

enum class FileState { missing, right, other };
// Whether a file is the published one, by its length and SHA-256.
FileState state_of(const std::string& path, const PublishedFile& file);

struct FetchWatch {
  std::function<void(std::int64_t bytes)> progress = [](std::int64_t) {};    // of the file are there by now
  std::function<void(const std::string&)> note = [](const std::string&) {};  // for the user
};

// Writes `folder`/NAME and returns the place that it came from; until it is whole and right it is NAME.part, which
// stays for the next attempt where no place gave the rest. Throws an io error that says of each place why it did not
// serve, and save errors.
std::string fetch_file(const PublishedFile& file, const std::vector<std::string>& places, const std::string& folder,
                       const FetchWatch& watch);

}  // namespace tutti
