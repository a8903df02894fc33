#include "backend/requests.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/portable_math.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

// Throws an internal error if a caller violates the interface.
template <class... Values>
void require(bool is_met, fmt::format_string<Values...> otherwise, Values&&... values) {
  if (!is_met) throw Error(ErrorSource::internal, fmt::format(otherwise, std::forward<Values>(values)...));
}

void require_fixed_point(const FixedPointGrid& grid, const Tensor& values, const Tensor& sums, const Tensor& largest) {
  const std::int64_t slices = grid.ends.elements();
  require(values.elements() == sums.elements() && grid.exponents.elements() == slices && largest.elements() == slices,
          "{} values and {} sums on a grid of {} slices with {} exponents and {} largest values", values.elements(),
          sums.elements(), slices, grid.exponents.elements(), largest.elements());
  require(sums.type == ElementType::i64 || sums.type == ElementType::i32, "fixed-point sums in {}", name_of(sums.type));
}

}  // namespace

void require_equal_sizes(std::string_view doing, std::int64_t one, std::int64_t other) {
  require(one == other, "{} tensors of {} and {}", doing, one, other);
}

void require_conversion(const Tensor& to, const Tensor& from) {
  require_equal_sizes("converting", to.elements(), from.elements());
  const bool rounds = to.type == ElementType::bf16 && from.type == ElementType::f32;
  require(rounds || (to.type == ElementType::f32 && from.type == ElementType::bf16), "a conversion from {} to {}",
          name_of(from.type), name_of(to.type));
}

void require_samples(const LayerSpec& spec, const LayerRequest& request) {
  const Shape& input = request.input.shape;
  require(input.ndim() >= 2 && input[0] >= 1, "a plan of {} needs one sample or more, not an input of {}",
          type_name(spec), input.text());
  static_cast<void>(output_shape(spec, input.without_first()));
}

Shape batch_output(const LayerSpec& spec, const Shape& input) {
  return output_shape(spec, input.without_first()).batch_of(input[0]);
}

void require_weights(const LayerSpec& owner, std::span<const Tensor> values, const LayerSpec& spec,
                     const Shape& sample) {
  const auto wanted = parameters(spec, sample);
  const auto fits = [](const ParameterSpec& parameter, const Tensor& value) { return parameter.shape == value.shape; };
  require(spec == owner && std::ranges::equal(wanted, values, fits),
          "a plan of {} on samples of {} was given the weights of another layer", type_name(spec), sample.text());
}

void require_residual(const LayerSpec& spec, const LayerRequest& request) {
  if (request.residual.format != nullptr && request.residual.shape == request.input.shape) return;
  throw Error(ErrorSource::input,
              fmt::format("{}: it adds an activation of {} to its input of {}, but both must have one shape; choose "
                          "channels and strides that make them equal",
                          type_name(spec), request.residual.shape.text(), request.input.shape.text()));
}

void require_fixed_point(const FixedPointGrid& grid, const ToFixedPoint& request) {
  require_fixed_point(grid, request.values, request.sums, request.largest);
}

void require_fixed_point(const FixedPointGrid& grid, const FromFixedPoint& request) {
  require_fixed_point(grid, request.values, request.sums, grid.ends);
}

void require_digests(std::span<const DigestedTensor> tensors, const Tensor& digests, MemorySpace space) {
  require(digests.elements() == std::ssize(tensors), "{} tensors are digested into {} digests", tensors.size(),
          digests.elements());
  for (const auto& [values, start] : tensors) {
    const bool fits =
        values.type == ElementType::f32 || values.type == ElementType::i32 || values.type == ElementType::i64;
    require(fits && values.space == space, "a tensor of {} {} has no digest or is in other memory", values.elements(),
            name_of(values.type));
  }
}

void require_search(const NotFiniteSearch& search) {
  const bool always = search.only_if.data == nullptr;
  require(search.found.elements() == 1 && (always || search.only_if.elements() == 1) && search.ends.elements() > 0,
          "a search in {} slices has {} results and {} conditions", search.ends.elements(), search.found.elements(),
          search.only_if.elements());
}

void require_loss(const Shape& logits, const LossOptions& options) {
  if (logits.ndim() != 2 || logits.elements() == 0) {
    throw Error(ErrorSource::input,
                fmt::format("softmax loss: its input is {}, but it needs samples x classes; end the "
                            "model with a linear layer",
                            logits.text()));
  }
  if (!(options.smoothing >= 0 && options.smoothing < 1)) {
    throw Error(ErrorSource::usage,
                fmt::format("label smoothing is {}, but must be at least 0 and below 1", options.smoothing));
  }
  const auto is_weight = [](double weight) { return weight >= 0 && std::isfinite(weight); };
  const auto weights = std::ssize(options.class_weights);
  if ((weights > 0 && weights != logits[1]) || !std::ranges::all_of(options.class_weights, is_weight)) {
    throw Error(ErrorSource::usage,
                fmt::format("the class weights are {}: give a number of 0 or more for each of the {} "
                            "classes",
                            fmt::join(options.class_weights, ","), logits[1]));
  }
}

void require_loss_sums(const LossPass& pass) {
  const std::int64_t fields = LossSums::kFields;
  require(pass.sums.elements() == fields, "loss sums are {} fields, not {}", fields, pass.sums.elements());
}

void require_images(const ImageSet& images) {
  require(std::ssize(images.pixels) == std::ssize(images.labels) * images.image.elements(),
          "{} pixels do not make up {} images of {} values", images.pixels.size(), images.labels.size(),
          images.image.elements());
}

void require_shape(std::string_view what, const Tensor& tensor, const Shape& shape) {
  require(tensor.shape == shape, "{} of an image batch have the shape {}, not {}", what, tensor.shape.text(),
          shape.text());
}

AdamWFactors factors_of(const AdamWStep& step) {
  const double first_bias = 1 - portable_power(step.beta1, step.step);
  const double second_bias = 1 - portable_power(step.beta2, step.step);
  return {.decay_factor = static_cast<float>(1 - step.learning_rate * step.weight_decay),
          .rate = static_cast<float>(step.learning_rate / first_bias),
          .beta1 = static_cast<float>(step.beta1),
          .beta2 = static_cast<float>(step.beta2),
          .one_minus_beta1 = static_cast<float>(1 - step.beta1),
          .one_minus_beta2 = static_cast<float>(1 - step.beta2),
          .inverse_root = static_cast<float>(1 / std::sqrt(second_bias)),
          .epsilon = static_cast<float>(step.epsilon)};
}

}  // namespace tutti
