#include "gradient_sync.hpp"

#include "tutti/base/error.hpp"

#include "elements.hpp"

#include <fmt/format.h>

namespace tutti {

GradientSync::GradientSync(Communicator& communicator, const ParameterLayout& layout, const Tensor& gradients,
                           std::size_t bucket_bytes)
    : communicator_(communicator), gradients_(gradients) {
  const auto& slices = layout.slices();
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const bool last = i + 1 == slices.size();
    const std::int64_t end = last ? layout.block_elements() : slices[i + 1].offset;
    if (last || static_cast<std::size_t>(end - begin) * sizeof(float) >= bucket_bytes) {
      ends_.push_back(end);
      begin = end;
    }
  }
}

GradientSync::~GradientSync() {
  if (next_ != 0) communicator_.abandon();
}

void GradientSync::ready(std::int64_t final_elements, Stream& stream) {
  while (next_ < ends_.size() && ends_[next_] <= final_elements) {
    const std::int64_t begin = next_ == 0 ? 0 : ends_[next_ - 1];
    communicator_.all_reduce_sum(elements_of(gradients_, begin, ends_[next_]), stream);
    ++next_;
  }
  communicator_.progress();
}

void GradientSync::finish(Stream& stream) {
  if (next_ != ends_.size()) {
    throw Error(ErrorSource::internal, fmt::format("the exchange ends with {} of {} buckets", next_, ends_.size()));
  }
  communicator_.finish(stream);
  next_ = 0;
}

}  // namespace tutti
