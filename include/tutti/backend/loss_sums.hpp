#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

namespace tutti {

// Loss and accuracy sums over samples, as integers, so that they do not depend on the order of addition or the number
// of ranks. They stay on the device until they are read. The loss of a call is split into digits in base kLossBase,
// each summed in its own field, so that any finite loss is counted and 2^23 calls cannot overflow a field.
struct LossSums {
  static constexpr int kFields = 8;
  static constexpr int kNotFinite = 3;                  // index of not_finite
  static constexpr int kLargeLosses = 4;                // index of large_losses[0]
  static constexpr double kLossScale = 16777216.0;      // 2^24 steps per unit of loss
  static constexpr double kLossBase = 1099511627776.0;  // 2^40
  static constexpr double kLargestUnit = 0x1p136;       // unit of the last large_losses field
  using Fields = std::array<std::int64_t, kFields>;

  std::int64_t loss_quanta = 0;  // the least significant digit of the sum of losses, in units of 1 / kLossScale
  std::int64_t correct = 0;      // samples whose largest logit (the first of equals) is the label's
  std::int64_t samples = 0;
  std::int64_t not_finite = 0;                 // calls whose loss was NaN or infinite
  std::array<std::int64_t, 4> large_losses{};  // of losses of 2^16 and more: units of 2^16, 2^56, 2^96 and 2^136

  // The fields in the order in which they are stored on the device.
  Fields fields() const { return std::bit_cast<Fields>(*this); }
  static LossSums from(const Fields& fields) { return std::bit_cast<LossSums>(fields); }
  // Adds the loss of one call.
  void add_loss(double loss) {
    if (!std::isfinite(loss)) {
      ++not_finite;
      return;
    }
    // Only the last digit is rounded.
    double unit = kLargestUnit;
    for (std::size_t i = large_losses.size(); i-- > 0; unit /= kLossBase) {
      const double digit = std::trunc(loss / unit);
      large_losses[i] += static_cast<std::int64_t>(digit);
      loss -= digit * unit;
    }
    loss_quanta += std::llrint(loss * kLossScale);
  }

  // NaN if any call's loss was not finite.
  double loss() const {
    if (not_finite > 0) return std::numeric_limits<double>::quiet_NaN();
    double loss = 0;
    double unit = kLargestUnit;
    for (std::size_t i = large_losses.size(); i-- > 0; unit /= kLossBase) {
      loss += static_cast<double>(large_losses[i]) * unit;
    }
    return loss + static_cast<double>(loss_quanta) / kLossScale;
  }
  double mean_loss() const { return loss() / static_cast<double>(samples); }
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(samples); }
  friend bool operator==(const LossSums&, const LossSums&) = default;
  friend LossSums operator+(const LossSums& one, const LossSums& other) { return combine<std::plus<>>(one, other); }
  friend LossSums operator-(const LossSums& one, const LossSums& other) { return combine<std::minus<>>(one, other); }

 private:
  // Results are modulo 2^64, as on devices.
  template <class Operation>
  static LossSums combine(const LossSums& one, const LossSums& other) {
    Fields fields = one.fields();
    const Fields others = other.fields();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      fields[i] = static_cast<std::int64_t>(
          Operation{}(static_cast<std::uint64_t>(fields[i]), static_cast<std::uint64_t>(others[i])));
    }
    return from(fields);
  }
};

}  // namespace tutti
