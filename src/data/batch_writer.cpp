#include "batch_writer.hpp"

#include <algorithm>
#include <cstddef>

namespace tutti {

ImageRecipe completed(ImageRecipe recipe, const DatasetInfo& data) {
  if (recipe.image.rank() == 0) recipe.image = data.image;
  return recipe;
}

BatchWriter::BatchWriter(const Dataset& data, const ImageRecipe& recipe)
    : data_(data), recipe_(recipe), images_(recipe), tables_(recipe) {}

void BatchWriter::write(const BatchRows& rows, const Tensor& images, const Tensor& labels) {
  const auto first_row = static_cast<std::size_t>(rows.first_row);
  const auto image_values = static_cast<std::size_t>(recipe_.image.elements());
  const auto values = host_f32(images).subspan(first_row * image_values);
  const auto classes = host_i32(labels).subspan(first_row);
  const auto at_once = static_cast<std::size_t>(data_.info().samples_at_once());
  for (std::size_t first = 0; first < rows.samples.size(); first += at_once) {
    const auto samples = rows.samples.subspan(first, std::min(at_once, rows.samples.size() - first));
    data_.read(samples, samples_);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const ImageView& image = samples_.images[i];
      const ImagePlan plan = plan_image(recipe_, image.shape, {.sample = samples[i], .epoch = rows.epoch});
      images_.write(image, plan, values.subspan((first + i) * image_values, image_values));
      classes[first + i] = samples_.labels[i];
    }
  }
}

void BatchWriter::write(const BatchRows& rows, const ImageTables& tables) {
  std::int64_t row = rows.first_row;
  for (const std::int64_t sample : rows.samples) {
    tables_.write(tables, row++, data_.info().image, {.sample = sample, .epoch = rows.epoch});
  }
}

}  // namespace tutti
