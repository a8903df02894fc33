#include "part_dealer.hpp"

#include "ownership.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

// 0: of none.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

PartDealer::PartDealer(Backend& backend, Communicator& communicator, RankStatus& rank_status,
                       const TrainerOptions& options)
    : backend_(backend),
      communicator_(communicator),
      rank_status_(rank_status),
      plan_(PartPlan::chosen(options.part_map.parts_by_rank, options.num_parts, communicator.size())),
      looks_(options.part_map.measured && communicator.size() > 1) {
  if (!looks_) return;
  exchanged_ = communicator.allocate(static_cast<std::size_t>(plan_.num_ranks()) * sizeof(double));
  constexpr int kWantedPerRank = 4;
  if (options.num_parts < kWantedPerRank * plan_.num_ranks()) {
    notes_.push_back(
        fmt::format("--part-map auto deals {} parts to {} ranks only roughly: {} parts or more serve it better",
                    options.num_parts, plan_.num_ranks(), kWantedPerRank * plan_.num_ranks()));
  }
}

std::int64_t PartDealer::most_parts() const { return looks_ ? most_parts_of_any() : parts().size(); }

int PartDealer::most_parts_of_any() const {
  return looks_ ? plan_.num_parts() - plan_.num_ranks() + 1 : std::ranges::max(plan_.parts_by_rank());
}

bool PartDealer::after_step(Stream& stream, double seconds_per_part) {
  if (measures() && seconds_per_part > 0) measured_.push_back(seconds_per_part);
  if (++steps_ != next_look_ || !looks_) return false;
  const SecondsPerPart seconds = of_all_ranks(stream, median(std::exchange(measured_, {})));
  const bool first = next_look_ == kFirstLook;
  next_look_ += kStepsBetweenLooks;
  // A rank without a sample in any of these steps leaves all in the dark.
  if (std::ranges::any_of(seconds, [](double each) { return each <= 0; })) return false;
  const PartPlan before = std::exchange(plan_, deal_anew(plan_, seconds));
  const bool changed = plan_ != before;
  if (changed || (first && is_better_without_some(plan_, seconds))) notes_.push_back(map_note(plan_, seconds));
  return changed;
}

SecondsPerPart PartDealer::of_all_ranks(Stream& stream, double mine) {
  const Shape by_rank{communicator_.size()};
  const Tensor exchanged = exchanged_.view(by_rank, ElementType::f64);
  SecondsPerPart seconds(static_cast<std::size_t>(communicator_.size()), mine);
  const Tensor host{seconds.data(), by_rank, ElementType::f64, MemorySpace::host};
  backend_.copy(stream, exchanged, host);
  return rank_status_.wait_for_ranks([&] {
    pass_on_rows(communicator_, exchanged, stream);
    communicator_.finish(stream);
    backend_.copy(stream, host, exchanged);
    stream.synchronize();
    return std::move(seconds);
  });
}

}  // namespace tutti
