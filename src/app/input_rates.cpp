#include "input_rates.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

// With as many digits as matter: 5.3, 41, 512.
std::string images_text(double per_second) {
  return per_second < 10 ? fmt::format("{:.1f}", per_second) : fmt::format("{:.0f}", per_second);
}

}  // namespace

InputRates input_rates(World& world, const PreparedImages& prepared, double rank) {
  double images = 0;
  double core_seconds = 0;
  InputRates rates;
  const auto all = all_gather_doubles(world, {static_cast<double>(prepared.images), prepared.core_seconds, rank});
  for (const auto& of_rank : all) {
    images += of_rank[0];
    core_seconds += of_rank[1];
    rates.rank += of_rank[2] / static_cast<double>(all.size());
  }
  if (core_seconds > 0) rates.core = images / core_seconds;
  return rates;
}

std::string rates_text(const InputRates& rates, bool on_gpus) {
  const char* const trains = on_gpus ? "GPU" : "rank";
  return fmt::format("a core prepares {} images/s, and a {} trains on {}/s: {:.1f} cores per {} prepare its images",
                     images_text(rates.core), trains, images_text(rates.rank), rates.cores(), trains);
}

}  // namespace tutti
