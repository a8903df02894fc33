#pragma once
// A published data set in a folder: what is missing is fetched, unpacked where it comes as an archive, and checked.

#include "tutti/data/published_set.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace tutti {

struct SetWatch {
  // Of a download: what it is and how many of its bytes are there.
  std::function<void(const PublishedFile&, std::int64_t)> progress = [](const PublishedFile&, std::int64_t) {};
  std::function<void(const std::string&)> note = [](const std::string&) {};  // for the user
};

// Makes the folder. Files that are there and right are left alone; one that is there and other than published is
// refused by an input error. Throws an io error that says why nothing came, and what to place where by other means.
void fetch_set(const PublishedSet& set, const std::string& folder, const SetWatch& watch);

// And those above it. Throws a save error.
void make_folder(const std::string& folder);
// What to place where when there is no network.
std::string placing_words(const PublishedSet& set, const std::string& folder);

}  // namespace tutti
