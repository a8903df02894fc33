#pragma once
// A checkpoint as files, written without the steps of a save, of one state or of shares of one with different arrays.

#include "tutti/base/checksums.hpp"

#include "storage/checkpoint_format.hpp"
#include "support/overwrite.hpp"

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tutti {

using CheckpointFiles = std::map<std::string, std::vector<std::byte>>;  // by name

inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Distributes the arrays cyclically. Each share has everything else.
inline std::vector<TrainState> shares_of(const TrainState& whole, std::size_t files) {
  std::vector<TrainState> shares(files, whole);
  for (const auto arrays :
       {&TrainState::parameters, &TrainState::statistics, &TrainState::optimizer, &TrainState::exchange}) {
    for (TrainState& share : shares) (share.*arrays).clear();
    for (std::size_t i = 0; i < (whole.*arrays).size(); ++i) {
      (shares[i % files].*arrays).push_back((whole.*arrays)[i]);
    }
  }
  return shares;
}

inline CheckpointFiles checkpoint_files(const std::vector<TrainState>& shares) {
  CheckpointFiles files;
  Manifest whole;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    std::vector<std::byte> image = checkpoint_file_bytes(shares[i]);
    Manifest part =
        manifest_of(shares[i], image, sha256_text(image), {static_cast<int>(i), static_cast<int>(shares.size())});
    files[part.files.front().name] = std::move(image);
    part.files.insert(part.files.begin(), whole.files.begin(), whole.files.end());
    part.weights += whole.weights;
    whole = std::move(part);
  }
  files[manifest_path(whole.files.front().name)] = bytes_of(manifest_text(whole));
  return files;
}

// Returns the path of the first file.
inline std::string write_checkpoint(const std::string& folder, const std::vector<TrainState>& shares) {
  const CheckpointFiles files = checkpoint_files(shares);
  for (const auto& [name, bytes] : files) overwrite(folder + "/" + name, bytes);
  return folder + "/" + checkpoint_file_name(shares.front().progress.step);
}

}  // namespace tutti
