#pragma once
// The initial weight of LayerInitializer::whitening. The first half of its outputs are eigenvectors of the covariance
// of the patches under the window at all positions of the images, those with the largest eigenvalues, each divided by
// sqrt(eigenvalue + 5e-4): these outputs have about the variance 1 and no correlation. The second half are their
// negatives. Sums are in double in a fixed order and call no library, so that all machines get the same bits.

#include "tutti/base/shape.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

class PatchCovariance {
 public:
  static constexpr std::int64_t kImages = 5000;  // the first images of the training data that are to be added

  PatchCovariance(const Shape& image, std::int64_t kernel);
  // An image in C, H, W order.
  void add(std::span<const float> image);
  std::vector<float> whitening(std::int64_t outputs) const;

 private:
  std::size_t values() const { return sums_.size(); }  // of a patch

  Shape image_;
  std::int64_t kernel_;
  double patches_ = 0;
  std::vector<double> sums_;
  std::vector<double> products_;  // values x values; the upper triangle
};

}  // namespace tutti
