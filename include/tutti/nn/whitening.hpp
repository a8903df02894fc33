#pragma once
// The initial weight of LayerInitializer::whitening. The first half of its outputs are eigenvectors of the covariance
// of the patches under the window at all positions of the images, those with the largest eigenvalues, each divided by
// sqrt(eigenvalue + 5e-4): these outputs have about the variance 1 and no correlation. The second half are their
// negatives. Sums are in double, each over all patches in order, and call no library, so that all machines get the same
// bits.

#include "tutti/base/shape.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

class PatchCovariance {
 public:
  PatchCovariance(const Shape& image, std::int64_t kernel);
  std::int64_t patches_of_image() const { return (image_[1] - kernel_ + 1) * (image_[2] - kernel_ + 1); }
  // An image in C, H, W order.
  void add(std::span<const float> image);
  std::vector<float> whitening(std::int64_t outputs) const;

 private:
  std::size_t values() const { return sums_.size(); }  // of a patch
  std::size_t stride() const { return (values() + kLanes - 1) / kLanes * kLanes; }

  static constexpr std::size_t kLanes = 4;  // sums that are added up side by side
  Shape image_;
  std::int64_t kernel_;
  double patches_ = 0;
  std::vector<double> sums_;
  std::vector<double> products_;  // values x stride(); the upper triangle
  std::vector<double> row_;       // the patches of a row of an image, each of stride()
};

}  // namespace tutti
