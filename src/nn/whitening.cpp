#include "tutti/nn/whitening.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

struct Eigenvectors {
  std::vector<double> values;
  std::vector<double> vectors;  // n x n, a column for each value
};

// The rotation of Jacobi's method that makes element (p, q) zero, applied to the rows, then to the columns.
struct Rotation {
  std::size_t p, q;
  double cosine, sine;

  void apply(double& at_p, double& at_q) const {
    const double before = at_p;
    at_p = cosine * before - sine * at_q;
    at_q = sine * before + cosine * at_q;
  }
};

// Cyclic Jacobi rotations of a symmetric matrix until they change nothing.
Eigenvectors eigenvectors_of(std::vector<double> a, std::size_t n) {
  constexpr int kMostSweeps = 60;
  std::vector<double> vectors(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) vectors[i * n + i] = 1;
  bool changed = true;
  for (int sweep = 0; changed && sweep < kMostSweeps; ++sweep) {
    changed = false;
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) {
        const double apart = a[p * n + q];
        if (std::abs(apart) <= 1e-15 * std::sqrt(std::abs(a[p * n + p] * a[q * n + q]))) continue;
        changed = true;
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * apart);
        const double tangent = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double cosine = 1 / std::sqrt(tangent * tangent + 1);
        const Rotation rotation{p, q, cosine, tangent * cosine};
        for (std::size_t k = 0; k < n; ++k) rotation.apply(a[k * n + p], a[k * n + q]);
        for (std::size_t k = 0; k < n; ++k) rotation.apply(a[p * n + k], a[q * n + k]);
        for (std::size_t k = 0; k < n; ++k) rotation.apply(vectors[k * n + p], vectors[k * n + q]);
      }
    }
  }
  Eigenvectors result{{}, std::move(vectors)};
  for (std::size_t i = 0; i < n; ++i) result.values.push_back(a[i * n + i]);
  return result;
}

}  // namespace

PatchCovariance::PatchCovariance(const Shape& image, std::int64_t kernel)
    : image_(image),
      kernel_(kernel),
      sums_(static_cast<std::size_t>(image[0] * kernel * kernel)),
      products_(values() * stride()),
      row_(static_cast<std::size_t>(image[2] - kernel + 1) * stride()) {}

void PatchCovariance::add(std::span<const float> image) {
  patches_ += static_cast<double>(patches_of_image());
  const std::size_t n = values();
  const std::size_t stride = this->stride();
  for (std::int64_t row = 0; row + kernel_ <= image_[1]; ++row) {
    std::size_t value = 0;
    for (std::int64_t channel = 0; channel < image_[0]; ++channel) {
      for (std::int64_t y = row; y < row + kernel_; ++y) {
        const float* const pixels = image.data() + (channel * image_[1] + y) * image_[2];
        for (std::int64_t x = 0; x < kernel_; ++x, ++value) {
          const float* pixel = pixels + x;
          for (std::size_t to = value; to < row_.size(); to += stride) row_[to] = *pixel++;
        }
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t at = 0; at < row_.size(); at += stride) sums_[i] += row_[at + i];
      for (std::size_t j = i / kLanes * kLanes; j < n; j += kLanes) {
        double* const products = &products_[i * stride + j];
        std::array<double, kLanes> sum;
        std::copy_n(products, kLanes, sum.begin());
        for (std::size_t at = 0; at < row_.size(); at += stride) {
          for (std::size_t lane = 0; lane < kLanes; ++lane) sum[lane] += row_[at + i] * row_[at + j + lane];
        }
        std::ranges::copy(sum, products);
      }
    }
  }
}

std::vector<float> PatchCovariance::whitening(std::int64_t outputs) const {
  constexpr double kEpsilon = 5e-4;
  const std::size_t n = values();
  std::vector<double> covariance(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) {
      const double value = products_[i * stride() + j] / patches_ - sums_[i] / patches_ * (sums_[j] / patches_);
      covariance[i * n + j] = covariance[j * n + i] = value;
    }
  }
  const Eigenvectors eigen = eigenvectors_of(std::move(covariance), n);
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>{}, [&](std::size_t i) { return eigen.values[i]; });
  std::vector<float> weight;
  for (const double sign : {1.0, -1.0}) {
    for (std::size_t output = 0; output < static_cast<std::size_t>(outputs / 2); ++output) {
      const std::size_t column = order[output];
      const double factor = sign / std::sqrt(std::max(0.0, eigen.values[column]) + kEpsilon);
      for (std::size_t i = 0; i < n; ++i) weight.push_back(static_cast<float>(factor * eigen.vectors[i * n + column]));
    }
  }
  return weight;
}

}  // namespace tutti
