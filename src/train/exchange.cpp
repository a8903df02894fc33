#include "exchange.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {

void gather_owned(Communicator& communicator, const Ownership& ownership, const Tensor& block, Stream& stream) {
  if (ownership.owners() == Owners::all) return;
  for (std::size_t bucket = 0; bucket < ownership.bucket_ends().size(); ++bucket) {
    if (!ownership.is_exchanged(bucket)) continue;
    const Tensor values = elements_of(block, ownership.bucket(bucket));
    if (ownership.owners() == Owners::root) {
      communicator.broadcast(values, stream);
    } else {
      // Without values to reduce, this is an all_gather of shards of any sizes.
      communicator.reduce_scatter_gather({.bounds = ownership.bounds(bucket), .results = values}, stream);
    }
  }
  communicator.finish(stream);
}

GradientExchange::GradientExchange(Communicator& communicator, const Ownership& ownership,
                                   const ExchangedGradients& exchanged)
    : communicator_(communicator),
      ownership_(ownership),
      exchanged_(exchanged),
      rounded_(exchanged.in_bf16 > 0 ? OwnedTensor(communicator, exchanged.in_bf16, ElementType::bf16)
                                     : OwnedTensor()) {}

GradientExchange::~GradientExchange() {
  if (next_ != 0) communicator_.abort();
}

bool GradientExchange::is_due(std::int64_t ready_elements) const {
  const auto& ends = ownership_.bucket_ends();
  return next_ < ends.size() && ends[next_] <= ready_elements;
}

void GradientExchange::start_ready_buckets(std::int64_t ready_elements, Stream& stream) {
  for (; is_due(ready_elements); ++next_) start(next_, stream);
  communicator_.progress();
}

void GradientExchange::start(std::size_t bucket, Stream& stream) {
  if (!ownership_.is_exchanged(bucket)) return;
  const IndexRange range = ownership_.bucket(bucket);
  const Tensor gradients = elements_of(exchanged_.gradients, range);
  const Owners owners = ownership_.owners();
  if (exchanged_.exact == nullptr && owners == Owners::all) return start_all_reduce(range, stream);
  if (exchanged_.exact == nullptr && owners == Owners::root) return communicator_.reduce_to_root(gradients, stream);
  ReduceScatterGather sum{.values = gradients, .bounds = ownership_.bounds(bucket)};
  if (exchanged_.exact != nullptr) {
    sum.values = elements_of(exchanged_.exact->sums(), range);
    sum.transform_shard = [exact = exchanged_.exact, range](Stream& on, std::int64_t begin, std::int64_t end) {
      exact->convert(on, {range.begin + begin, range.begin + end});
    };
    if (owners == Owners::all) sum.results = gradients;
  }
  communicator_.reduce_scatter_gather(sum, stream);
}

void GradientExchange::start_all_reduce(IndexRange range, Stream& stream) {
  const IndexRange in_bf16{range.begin, std::clamp(exchanged_.in_bf16, range.begin, range.end)};
  const IndexRange in_f32{in_bf16.end, range.end};
  if (in_bf16.size() > 0) {
    const Tensor rounded = elements_of(rounded_.values, in_bf16);
    exchanged_.backend->convert(stream, rounded, elements_of(exchanged_.gradients, in_bf16));
    communicator_.all_reduce(rounded, stream);
  }
  if (in_f32.size() > 0) communicator_.all_reduce(elements_of(exchanged_.gradients, in_f32), stream);
}

void GradientExchange::finish(Stream& stream) {
  const std::size_t buckets = ownership_.bucket_ends().size();
  if (next_ != buckets) {
    throw Error(ErrorSource::internal, fmt::format("only {} of {} buckets were started", next_, buckets));
  }
  communicator_.finish(stream);
  if (exchanged_.in_bf16 > 0) {
    exchanged_.backend->convert(stream, elements_of(exchanged_.gradients, {0, exchanged_.in_bf16}), rounded_.values);
  }
  next_ = 0;
}

}  // namespace tutti
