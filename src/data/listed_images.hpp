#pragma once
// Image files without labels: those that are named one by one, and those in folders that are named.

#include "data_block.hpp"

#include <string>
#include <vector>

namespace tutti {

// Files in the order of the words, whatever their ending; of a folder, all .jpg, .jpeg and .png files in it and below,
// in the order of their names, its own before those below. Throws io and input errors that name the word.
LoadedPair list_images(const std::vector<std::string>& words);

}  // namespace tutti
