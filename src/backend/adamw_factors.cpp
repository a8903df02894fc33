#include "backend/adamw_factors.hpp"

#include "tutti/backend/backend.hpp"

#include <cmath>

namespace tutti {

AdamWFactors factors_of(const AdamWStep& step) {
  const double first_bias = 1 - std::pow(step.beta1, static_cast<double>(step.step));
  const double second_bias = 1 - std::pow(step.beta2, static_cast<double>(step.step));
  return {.kept = static_cast<float>(1 - step.learning_rate * step.weight_decay),
          .rate = static_cast<float>(step.learning_rate / first_bias),
          .beta1 = static_cast<float>(step.beta1),
          .beta2 = static_cast<float>(step.beta2),
          .fresh1 = static_cast<float>(1 - step.beta1),
          .fresh2 = static_cast<float>(1 - step.beta2),
          .inverse_root = static_cast<float>(1 / std::sqrt(second_bias)),
          .epsilon = static_cast<float>(step.epsilon)};
}

}  // namespace tutti
