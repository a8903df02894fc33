#include "finite_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace tutti {
namespace {

constexpr std::int64_t kLossColumns = sizeof(std::int64_t) / sizeof(std::int32_t);

Tensor ends_in(const Buffer& buffer, std::size_t count) {
  return buffer.view(Shape{static_cast<std::int64_t>(count)}, ElementType::i64);
}

}  // namespace

Error not_finite_error(const std::string& finding, const char* remedy) {
  return Error(ErrorSource::not_finite, fmt::format("{}: {}", finding, remedy)).on_all_ranks();
}

FiniteCheck::FiniteCheck(FiniteCheckRequest request)
    : request_(std::move(request)),
      columns_(kLosses + kLossColumns * request_.max_workers_of_any),
      shape_{request_.context.communicator.size() * columns_},
      rows_(
          request_.context.communicator.allocate(static_cast<std::size_t>(shape_.elements()) * sizeof(std::int32_t))) {
  std::vector<std::int64_t> single_ends(request_.arena.layout().slices().size());
  std::iota(single_ends.begin(), single_ends.end(), std::int64_t{1});
  single_ends.push_back(std::numeric_limits<std::int64_t>::max());
  ends_ = upload(request_.context.backend, request_.arena.layout().slice_ends());
  single_ends_ = upload(request_.context.backend, std::move(single_ends));
  // The same on all ranks, even with different processors: no rank may end its run while another starts the next
  // exchange.
  const bool waits = request_.exact != nullptr || request_.on_not_finite == OnNotFinite::skip;
  pending_.resize(waits ? 1 : static_cast<std::size_t>(std::max(0, request_.max_delay_steps)) + 1);
  for (PendingCheck& check : pending_) {
    check.rows = request_.context.backend.allocate_staging(rows_.bytes());
    check.copied = request_.context.backend.make_event();
  }
}

void FiniteCheck::search(std::int64_t final_elements) {
  Stream& stream = request_.context.stream;
  if (searched_ == 0) request_.context.backend.fill_zero(stream, cell(0, columns_));
  if (request_.exact == nullptr && final_elements > searched_) {
    const IndexRange fresh{searched_, final_elements};
    request_.context.backend.find_not_finite(stream, {.values = elements_of(request_.arena.gradients(), fresh),
                                                      .ends = ends_in(ends_, request_.arena.layout().slices().size()),
                                                      .offset = fresh.begin,
                                                      .found = cell(kGradients)});
  }
  searched_ = final_elements;
}

void FiniteCheck::gather(const std::vector<Tensor>& bad_losses, std::span<const Batch> batches) {
  Backend& backend = request_.context.backend;
  Stream& stream = request_.context.stream;
  const std::size_t slices = request_.arena.layout().slices().size();
  searched_ = 0;
  if (request_.exact != nullptr) {
    // The bits of magnitudes; those of NaN are above those of infinity.
    Tensor greatest = request_.exact->largest();
    greatest.type = ElementType::f32;
    backend.find_not_finite(stream,
                            {.values = greatest, .ends = ends_in(single_ends_, slices), .found = cell(kGradients)});
  }
  backend.find_not_finite(stream, {.values = request_.arena.weights(),
                                   .ends = ends_in(ends_, slices),
                                   .found = cell(kWeights),
                                   .only_if = cell(kGradients)});
  for (const Batch& batch : batches) {
    if (batch.samples == 0) continue;
    backend.find_not_finite(stream,
                            {.values = batch.images,
                             .ends = single_ends_.view(Shape{1}, ElementType::i64, slices * sizeof(std::int64_t)),
                             .found = cell(kImages),
                             .only_if = cell(kGradients)});
  }
  for (std::size_t worker = 0; worker < bad_losses.size(); ++worker) {
    const std::int64_t column = kLosses + kLossColumns * static_cast<std::int64_t>(worker);
    backend.copy(stream, cell(column, kLossColumns), bad_losses[worker]);
  }
  all_gather_rows(request_.context.communicator, rows(), request_.context.stream);
}

Tensor FiniteCheck::cell(std::int64_t column, std::int64_t width) const {
  const std::int64_t begin = request_.context.communicator.rank() * columns_ + column;
  return elements_of(rows(), {begin, begin + width});
}

bool FiniteCheck::check(std::int64_t step) {
  PendingCheck& now = pending_[next_];
  next_ = (next_ + 1) % pending_.size();
  now.step = step;
  request_.context.backend.copy(request_.context.stream, now.rows.view(shape_, ElementType::i32), rows());
  request_.context.stream.record(*now.copied);
  return result_of(pending_[next_]);
}

void FiniteCheck::synchronize() {
  for (std::size_t i = 0; i < pending_.size(); ++i) result_of(pending_[(next_ + i) % pending_.size()]);
}

void FiniteCheck::reset() {
  for (PendingCheck& check : pending_) check.step = 0;
  in_a_row_ = 0;
}

bool FiniteCheck::result_of(PendingCheck& check) {
  const std::int64_t step = std::exchange(check.step, 0);
  if (step == 0) return true;
  request_.context.stream.await(*check.copied);
  const Detection detection = detection_in(check);
  if (detection.ranks == 0) {
    in_a_row_ = 0;
    return true;
  }
  const std::string text = message(detection, step);
  const char* const remedy = detection.images ? "check the data and --normalize" : kNotFiniteRemedy;
  if (request_.on_not_finite == OnNotFinite::stop) throw not_finite_error(text, remedy);
  if (++in_a_row_ == kMaxConsecutiveSkips) {
    throw not_finite_error(fmt::format("{}, and {} steps in a row were skipped", text, in_a_row_), remedy);
  }
  const ParameterSlice* const slice = detection.weights != nullptr ? detection.weights : detection.gradients;
  skipped_ = {.step = step, .rank = detection.rank, .tensor = slice == nullptr ? "loss" : slice->name, .finding = text};
  return false;
}

FiniteCheck::Detection FiniteCheck::detection_in(const PendingCheck& check) const {
  Detection first;
  const std::span<const std::int32_t> all = host_i32(check.rows.view(shape_, ElementType::i32));
  for (int rank = 0; rank < request_.context.communicator.size(); ++rank) {
    const auto row = all.subspan(static_cast<std::size_t>(rank * columns_), static_cast<std::size_t>(columns_));
    const bool loss = std::ranges::any_of(row.subspan(kLosses), [](std::int32_t half) { return half != 0; });
    if (row[kGradients] == 0 && !loss) continue;
    if (first.ranks++ > 0) continue;
    first.rank = rank;
    first.weights = slice_found(row[kWeights]);
    first.gradients = slice_found(row[kGradients]);
    first.loss = loss;
    first.images = row[kImages] != 0;
  }
  return first;
}

const ParameterSlice* FiniteCheck::slice_found(std::int32_t found) const {
  const auto& slices = request_.arena.layout().slices();
  return found == 0 ? nullptr : &slices.at(slices.size() - static_cast<std::size_t>(found));
}

std::string FiniteCheck::message(const Detection& detection, std::int64_t step) const {
  const auto gradient = [&] {
    return fmt::format("a {} of {}", is_statistic(detection.gradients->kind) ? "statistic" : "gradient",
                       detection.gradients->name);
  };
  std::string text = detection.weights != nullptr ? fmt::format("a value of {}", detection.weights->name)
                     : detection.loss             ? "the loss"
                                                  : gradient();
  text += fmt::format(" is no longer a finite number at step {}", step);
  if (detection.ranks == request_.context.communicator.size()) {
    if (detection.ranks > 1) text += " on every rank";
  } else {
    text += fmt::format(" on rank {}", detection.rank);
    if (!request_.hosts.empty())
      text += fmt::format(" ({})", request_.hosts.at(static_cast<std::size_t>(detection.rank)));
    if (detection.ranks > 1) text += fmt::format(" and {} more", detection.ranks - 1);
  }
  if (detection.weights != nullptr) return text;
  if (detection.loss && detection.gradients != nullptr)
    text += fmt::format(", and in its backward pass {}", gradient());
  if (detection.images) text += "; pixels of its batch are not finite either";
  return text;
}

}  // namespace tutti
