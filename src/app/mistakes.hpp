#pragma once
// The wrongly classified images that a network is most confident of, as PNG files for people to look at.

#include "tutti/data/dataset.hpp"
#include "tutti/train/sample_scores.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct Mistake {
  std::int64_t sample = 0;
  std::size_t label = 0;
  std::size_t predicted = 0;
  double probability = 0;           // of the predicted class
  double probability_of_label = 0;  // of the true class
};

class Mistakes {
 public:
  explicit Mistakes(std::size_t most) : most_(most) {}

  void add(const ChunkScores& scores);
  // At most `most` of them, the most confident first.
  std::vector<Mistake> sorted() const;

 private:
  std::size_t most_;
  std::vector<Mistake> heap_;  // the least confident first
};

// The image as a PNG file. A larger one is averaged over squares of its pixels until no side is longer than `most`. Of
// channels that are neither gray nor RGB, only the first is shown.
std::vector<std::byte> small_png(const ImageView& image, std::int64_t most);

// Writes the images of these mistakes into `folder`, which is made where it is missing, and returns their file names.
std::vector<std::string> write_pictures(const std::string& folder, const Dataset& data,
                                        const std::vector<Mistake>& mistakes);

}  // namespace tutti
