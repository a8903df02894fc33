#pragma once
// A flat folder of images with a table of their labels: labels.csv, or the folder's only .csv file. Two columns, comma
// separated, fields quoted where they hold commas, lines ended by LF or CRLF:
//   an image's file name in the folder, with its ending or without it, and its label, any text
// A first line "file,label" or "id,label" or the like is left out. Classes are the labels in their order: of the
// numbers where all are numbers, else of the texts.

#include "loaded_set.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// The images that the table lists, in its order; or nothing where the folder holds no images or no table. Images
// that it does not list are told in `notes`. Throws input errors that name the table's line.
std::optional<LoadedSet> list_labelled_folder(const std::filesystem::path& folder, std::vector<std::string>& notes);

}  // namespace tutti
