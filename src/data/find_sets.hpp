#pragma once
// From the name of a data set to its samples or to where they are: built-in sets, data files, and folders of every
// kind that open_data.hpp lists. What two sets have in common is settled elsewhere.

#include "tutti/data/open_data.hpp"

#include "data_block.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace tutti {

// The training set, and the test set that lies with it where none is held out or lies apart. A data file with more
// bytes of images than `most_resident_bytes` is not read; 0: every one is. Throws usage, input and io errors that name
// the place.
LoadedPair find_sets(const DataRequest& request);
// request.test, a place given for the test set alone, may hold files named as such or as a training set.
LoadedSet find_test_set(const DataRequest& request, std::vector<std::string>& notes);

// What is said of a folder or file that is no data set: what lies there, and what would make it one.

// Of a folder in which no reader has found a set. Throws an input error that names it.
[[noreturn]] void refuse_folder(const std::filesystem::path& folder);

// Throws an input error for a file that does not even begin as an HDF5 file does; passes over what cannot be read.
void refuse_foreign_file(const std::string& path);

}  // namespace tutti
