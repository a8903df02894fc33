#include "load_once.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace tutti {
namespace {

// The first rank of a host loads for all of them.
void refuse_other_data_on_a_host(World& world, const DataRequest& request) {
  const auto hosts = all_gather_text(world, world.host());
  const auto wishes = all_gather_text(
      world,
      request.images.empty()
          ? fmt::format("--data {} --test-data {} --validation-ratio {} --seed {} --skip-bad-images {} --exif {}",
                        request.train, request.test, request.validation_ratio, request.seed, request.skip_bad_images,
                        request.upright)
          : fmt::format("{} --skip-bad-images {} --exif {}", fmt::join(request.images, " "), request.skip_bad_images,
                        request.upright));
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto first = static_cast<std::size_t>(std::ranges::find(hosts, hosts[rank]) - hosts.begin());
    if (wishes[rank] == wishes[first]) continue;
    throw Error(ErrorSource::input,
                fmt::format("rank {} wants other data than rank {} on the same host, {} against {}: "
                            "give all ranks the same",
                            rank, first, wishes[rank], wishes[first]))
        .on_all_ranks();
  }
}

}  // namespace

std::span<const std::byte> LoadedBlock::bytes() const {
  if (shared.data() == nullptr) return own;
  return {static_cast<const std::byte*>(shared.data()), shared.bytes()};
}

LoadedBlock load_once(World& world, const DataRequest& request) {
  refuse_other_data_on_a_host(world, request);
  std::vector<std::byte> loaded;
  run_agreed(world, [&] {
    if (world.local_rank() == 0) loaded = load_data(request);
  });
  LoadedBlock block;
  if (world.size() == 1) {
    block.own = std::move(loaded);
    return block;
  }
  block.shared = world.node_memory(loaded.size());
  if (world.local_rank() == 0) std::memcpy(block.shared.data(), loaded.data(), loaded.size());
  world.node_barrier();
  return block;
}

}  // namespace tutti
