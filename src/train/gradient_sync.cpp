#include "gradient_sync.hpp"

#include "tutti/base/error.hpp"

#include "elements.hpp"

#include <fmt/format.h>

namespace tutti {

GradientSync::GradientSync(Communicator& communicator, const Ownership& ownership, const Tensor& gradients,
                           ExactSum* exact)
    : communicator_(communicator), ownership_(ownership), gradients_(gradients), exact_(exact) {}

GradientSync::~GradientSync() {
  if (next_ != 0) communicator_.abandon();
}

bool GradientSync::is_due(std::int64_t final_elements) const {
  const auto& ends = ownership_.bucket_ends();
  return next_ < ends.size() && ends[next_] <= final_elements;
}

void GradientSync::ready(std::int64_t final_elements, Stream& stream) {
  for (; is_due(final_elements); ++next_) start(next_, stream);
  communicator_.progress();
}

void GradientSync::start(std::size_t bucket, Stream& stream) {
  const IndexRange range = ownership_.bucket(bucket);
  const Tensor gradients = elements_of(gradients_, range);
  if (exact_ != nullptr) {
    const auto convert = [exact = exact_, place = range.begin](Stream& on, std::int64_t begin, std::int64_t end) {
      exact->convert(on, {place + begin, place + end});
    };
    const bool everywhere = ownership_.owners() == Owners::everyone;
    return communicator_.reduce_scatter_gather({.values = elements_of(exact_->sums(), range),
                                                .bounds = ownership_.bounds(bucket),
                                                .then = convert,
                                                .results = everywhere ? gradients : Tensor{}},
                                               stream);
  }
  switch (ownership_.owners()) {
    case Owners::everyone:
      return communicator_.all_reduce(gradients, stream);
    case Owners::shares:
      return communicator_.reduce_scatter_gather(
          {.values = gradients, .bounds = ownership_.bounds(bucket), .then = {}, .results = {}}, stream);
    case Owners::first:
      return communicator_.reduce_to_root(gradients, stream);
  }
}

void GradientSync::finish(Stream& stream) {
  const std::size_t buckets = ownership_.bucket_ends().size();
  if (next_ != buckets) {
    throw Error(ErrorSource::internal, fmt::format("the exchange ends with {} of {} buckets", next_, buckets));
  }
  communicator_.finish(stream);
  next_ = 0;
}

}  // namespace tutti
