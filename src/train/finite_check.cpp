#include "finite_check.hpp"

#include "tutti/train/replica.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kLossColumns = sizeof(std::int64_t) / sizeof(std::int32_t);

bool has_bad_loss(std::span<const std::int32_t> losses) {
  return std::ranges::any_of(losses, [](std::int32_t half) { return half != 0; });
}

}  // namespace

Error not_finite_error(const std::string& finding, const char* remedy) {
  return Error(ErrorSource::not_finite, fmt::format("{}: {}", finding, remedy)).on_all_ranks();
}

FiniteCheck::FiniteCheck(FiniteCheckRequest request)
    : request_(std::move(request)),
      columns_(kLosses + kLossColumns * request_.max_workers_of_any),
      rows_(request_.context.communicator, request_.context.communicator.size() * columns_, ElementType::i32),
      ends_(upload(request_.context.backend, request_.arena.layout().slice_ends())) {
  std::vector<std::int64_t> single_ends(request_.arena.layout().slices().size());
  std::iota(single_ends.begin(), single_ends.end(), std::int64_t{1});
  single_ends.push_back(std::numeric_limits<std::int64_t>::max());
  single_ends_ = upload(request_.context.backend, std::move(single_ends));
  // The same on all ranks, even with different processors: no rank may end its run while another starts the next
  // exchange.
  const bool waits = request_.exact != nullptr || request_.on_not_finite == OnNotFinite::skip;
  pending_.resize(waits ? 1 : static_cast<std::size_t>(std::max(0, request_.max_delay_steps)) + 1);
  for (PendingCheck& check : pending_) {
    check.rows = request_.context.backend.allocate_staging(rows_.values.bytes());
    check.copied = request_.context.backend.make_event();
  }
}

void FiniteCheck::before_exchange(std::int64_t ready_elements) {
  Stream& stream = request_.context.stream;
  if (request_.exact == nullptr && ready_elements > searched_) {
    const IndexRange fresh{searched_, ready_elements};
    request_.context.backend.find_not_finite(stream, {.values = elements_of(request_.arena.gradients(), fresh),
                                                      .ends = ends_.values,
                                                      .offset = fresh.begin,
                                                      .found = cell(kGradients)});
  }
  searched_ = ready_elements;
}

// Each unfinished gradient in the slice of its canonical one, then what lies between these.
void FiniteCheck::search_unfinished(const UnfinishedGradients& unfinished) {
  const Tensor block = request_.arena.gradients();
  const auto& slices = request_.arena.layout().slices();
  std::vector<NotFiniteSearch> searches;
  const auto search_between = [&](std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    searches.push_back(
        {.values = elements_of(block, {begin, end}), .ends = ends_.values, .offset = begin, .found = cell(kGradients)});
  };
  std::vector<UnfinishedGradient> gradients = unfinished.list();
  const auto offset_of = [&](const UnfinishedGradient& gradient) {
    return static_cast<const float*>(gradient.canonical.data) - static_cast<const float*>(block.data);
  };
  std::ranges::sort(gradients, {}, offset_of);
  std::int64_t done = 0;
  for (const UnfinishedGradient& gradient : gradients) {
    const std::int64_t begin = offset_of(gradient);
    const std::int64_t slice = std::ranges::find(slices, begin, &ParameterSlice::offset) - slices.begin();
    // Before the end of its slice, which is the first of those searched: it may have more values than the slice.
    searches.push_back({.values = gradient.values,
                        .ends = elements_of(ends_.values, {slice, std::ssize(slices)}),
                        .offset = -gradient.values.elements(),
                        .found = cell(kGradients)});
    search_between(done, begin);
    done = begin + gradient.canonical.elements();
  }
  search_between(done, block.elements());
  request_.context.backend.find_all_not_finite(request_.context.stream, searches);
  searched_ = block.elements();
}

void FiniteCheck::find(std::span<const Batch> batches, const UnfinishedGradients* unfinished) {
  if (unfinished != nullptr) search_unfinished(*unfinished);
  before_exchange(request_.arena.gradients().elements());
  Backend& backend = request_.context.backend;
  Stream& stream = request_.context.stream;
  const std::int64_t slices = ends_.values.elements();
  searched_ = 0;
  if (request_.exact != nullptr) {
    // The bits of magnitudes; those of NaN are above those of infinity.
    Tensor largest = request_.exact->largest();
    largest.type = ElementType::f32;
    backend.find_not_finite(
        stream, {.values = largest, .ends = elements_of(single_ends_.values, {0, slices}), .found = cell(kGradients)});
  }
  std::vector<NotFiniteSearch> causes{
      {.values = request_.arena.weights(), .ends = ends_.values, .found = cell(kWeights), .only_if = cell(kGradients)}};
  for (const Batch& batch : batches) {
    if (batch.samples == 0) continue;
    causes.push_back({.values = batch.images,
                      .ends = elements_of(single_ends_.values, {slices, slices + 1}),
                      .found = cell(kImages),
                      .only_if = cell(kGradients)});
  }
  backend.find_all_not_finite(stream, causes);
  for (std::size_t worker = 0; worker < request_.bad_losses.size(); ++worker) {
    const std::int64_t column = kLosses + kLossColumns * static_cast<std::int64_t>(worker);
    backend.copy(stream, cell(column, kLossColumns), request_.bad_losses[worker]);
  }
}

Tensor FiniteCheck::cell(std::int64_t column, std::int64_t width) const {
  const std::int64_t begin = request_.context.communicator.rank() * columns_ + column;
  return elements_of(rows_.values, {begin, begin + width});
}

void FiniteCheck::copy_findings() {
  request_.context.backend.copy(request_.context.stream,
                                pending_[next_].rows.view(rows_.values.shape, ElementType::i32), rows_.values);
}

void FiniteCheck::after_parts(const PartsOfStep& parts) {
  if (parts.checked_in_update) return;
  find(parts.batches.batches, nullptr);
  all_gather_rows(request_.context.communicator, rows_.values, request_.context.stream);
}

// If checks are delayed, the result is that of an earlier step. It may end the run, but never skips this step: checks
// are not delayed with OnNotFinite::skip, nor with `exact`, whose own check needs finite gradients.
StepOutcome FiniteCheck::after_exchange(const PartsOfStep& parts, StepResult& result) {
  if (parts.checked_in_update) return StepOutcome::valid;
  copy_findings();
  result.skipped = check(parts.step + 1);
  return result.skipped ? StepOutcome::skipped : StepOutcome::valid;
}

RecordedWork::Key FiniteCheck::key(const PartsOfStep& parts, const UnfinishedGradients* unfinished) const {
  RecordedWork::Key key{pending_[next_].rows.data()};
  for (const Batch& batch : parts.batches.batches) {
    const auto* const images = static_cast<const float*>(batch.images.data);
    key.insert(key.end(), {images, images + batch.images.elements()});
  }
  if (unfinished == nullptr) return key;
  for (const UnfinishedGradient& gradient : unfinished->list()) key.push_back(gradient.values.data);
  return key;
}

void FiniteCheck::check_in_update(const PartsOfStep& parts, const UnfinishedGradients* unfinished) {
  find(parts.batches.batches, unfinished);
  copy_findings();
}

std::optional<SkippedReport> FiniteCheck::check(std::int64_t step) {
  PendingCheck& now = pending_[next_];
  next_ = (next_ + 1) % pending_.size();
  now.step = step;
  request_.context.stream.record(*now.copied);
  return result_of(pending_[next_]);
}

void FiniteCheck::synchronize() {
  for (std::size_t i = 0; i < pending_.size(); ++i) result_of(pending_[(next_ + i) % pending_.size()]);
}

std::optional<SkippedReport> FiniteCheck::result_of(PendingCheck& check) {
  const std::int64_t step = std::exchange(check.step, 0);
  if (step == 0) return std::nullopt;
  request_.context.stream.await(*check.copied);
  const std::span<const std::int32_t> all = host_i32(check.rows.view(rows_.values.shape, ElementType::i32));
  const auto row_of = [&](int rank) {
    return all.subspan(static_cast<std::size_t>(rank * columns_), static_cast<std::size_t>(columns_));
  };
  std::vector<int> ranks;  // with a finding
  for (int rank = 0; rank < request_.context.communicator.size(); ++rank) {
    if (row_of(rank)[kGradients] != 0 || has_bad_loss(row_of(rank).subspan(kLosses))) ranks.push_back(rank);
  }
  if (ranks.empty()) {
    in_a_row_ = 0;
    return std::nullopt;
  }
  request_.context.backend.fill_zero(request_.context.stream, rows_.values);
  const auto row = row_of(ranks.front());
  const std::string text = message(row, ranks, step);
  const char* const remedy = row[kImages] != 0 ? "check the data and --normalize" : kNotFiniteRemedy;
  const auto end_run = [&](const std::string& why) {
    for (PendingCheck& pending : pending_) pending.step = 0;  // their findings would only repeat this one
    throw not_finite_error(why, remedy);
  };
  if (request_.on_not_finite == OnNotFinite::stop) end_run(text);
  if (++in_a_row_ == kMaxConsecutiveSkips) {
    end_run(fmt::format("{}, and {} steps in a row were skipped", text, in_a_row_));
  }
  const std::int32_t found = row[kWeights] != 0 ? row[kWeights] : row[kGradients];
  const std::string tensor = found == 0 ? "loss" : slice_found(found).name;
  return SkippedReport{.step = step, .rank = ranks.front(), .tensor = tensor, .finding = text};
}

const ParameterSlice& FiniteCheck::slice_found(std::int32_t found) const {
  const auto& slices = request_.arena.layout().slices();
  return slices.at(slices.size() - static_cast<std::size_t>(found));
}

std::string FiniteCheck::message(std::span<const std::int32_t> row, const std::vector<int>& ranks,
                                 std::int64_t step) const {
  const bool loss = has_bad_loss(row.subspan(kLosses));
  const auto gradient = [&] {
    const ParameterSlice& slice = slice_found(row[kGradients]);
    return fmt::format("a {} of {}", is_statistic(slice.kind) ? "statistic" : "gradient", slice.name);
  };
  std::string text = row[kWeights] != 0 ? fmt::format("a value of {}", slice_found(row[kWeights]).name)
                     : loss             ? "the loss"
                                        : gradient();
  text += fmt::format(" is no longer a finite number at step {}", step);
  if (std::ssize(ranks) == request_.context.communicator.size()) {
    if (ranks.size() > 1) text += " on every rank";
  } else {
    text += fmt::format(" on rank {}", ranks.front());
    if (!request_.hosts.empty()) {
      text += fmt::format(" ({})", request_.hosts.at(static_cast<std::size_t>(ranks.front())));
    }
    if (ranks.size() > 1) text += fmt::format(" and {} more", ranks.size() - 1);
  }
  if (row[kWeights] != 0) return text;
  if (loss && row[kGradients] != 0) text += fmt::format(", and in its backward pass {}", gradient());
  if (row[kImages] != 0) text += "; pixels of its batch are not finite either";
  return text;
}

}  // namespace tutti
