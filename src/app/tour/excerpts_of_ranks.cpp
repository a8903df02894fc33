#include "tutti/base/digest.hpp"

#include "../several.hpp"
#include "station.hpp"

#include <fmt/format.h>

#include <set>

namespace tutti {

ExcerptOfRanks gather_excerpt(World& world, const std::vector<double>& mine, std::uint64_t digest) {
  return {.values = all_gather_figures(world, mine), .digests = all_gather_text(world, digest_text(digest))};
}

void draw_excerpts(Screen& screen, const Excerpt& excerpt, const ExcerptOfRanks& ranks, const ValueScale& scale) {
  constexpr int kMostBlocks = 8;
  std::vector<std::vector<std::string>> blocks;
  for (const ToldRanks& told : told_ranks(static_cast<int>(ranks.values.size()), kMostBlocks)) {
    if (!told.is_one()) continue;
    const auto rank = static_cast<std::size_t>(told.first);
    auto& block = blocks.emplace_back(excerpt_text(excerpt, ranks.values.at(rank), scale));
    block.insert(block.begin(), told.text());
    block.push_back(fmt::format("digest {}", ranks.digests.at(rank)));
  }
  screen.side_by_side(blocks);
}

std::size_t count_different(const std::vector<std::string>& digests) {
  return std::set<std::string>(digests.begin(), digests.end()).size();
}

std::string verdict_text(Tour& tour, const std::vector<std::string>& digests, const char* if_equal) {
  const std::size_t different = count_different(digests);
  tour.is_right = tour.is_right && different == 1;
  return fmt::format("{}, {}: {}", several(digests.size(), "rank"), several(different, "digest"),
                     different == 1 ? if_equal : "the ranks differ, and training cannot go well.");
}

std::uint64_t trained_digest(Tour& tour, const Tensor& block) {
  const auto stream = tour.run->assembly.backend->make_stream();
  return digest_of(*tour.run->assembly.backend, *stream, block, tour.run->assembly.network->layout().trained());
}

}  // namespace tutti
