#include "run_data.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/nn/models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace tutti {
namespace {

void refuse_options_of_read_sets(const RunConfig& config) {
  const bool reads_test = !config.test_data.empty();
  if (!reads_test && config.validation_ratio == 0) return;
  throw Error(
      ErrorSource::usage,
      fmt::format("{} is for data that are read from files, and --data {} is an extension of this program, with "
                  "its own test set or none: leave the option out",
                  reads_test ? "--test-data" : "--validation-ratio", config.data));
}

// The first rank of a host loads the data for all ranks of the host.
void refuse_other_data_on_a_host(World& world, const DataRequest& request) {
  const auto hosts = all_gather_text(world, world.host());
  const auto requests = all_gather_text(
      world,
      request.images.empty()
          ? fmt::format("--data {} --test-data {} --validation-ratio {} --seed {} --skip-bad-images {} --exif {}",
                        request.train, request.test, request.validation_ratio, request.seed, request.skip_bad_images,
                        request.upright)
          : fmt::format("{} --skip-bad-images {} --exif {}", fmt::join(request.images, " "), request.skip_bad_images,
                        request.upright));
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto first = static_cast<std::size_t>(std::ranges::find(hosts, hosts[rank]) - hosts.begin());
    if (requests[rank] == requests[first]) continue;
    throw Error(ErrorSource::input,
                fmt::format("rank {} requests other data than rank {} on the same host, {} instead of {}: "
                            "give all ranks the same",
                            rank, first, requests[rank], requests[first]))
        .on_all_ranks();
  }
}

}  // namespace

NetworkSpec choose_model(const RunConfig& config) {
  const std::string& model = config.model;
  if (config.extensions != nullptr) {
    const auto found = std::ranges::find(config.extensions->networks, model, &NetworkSpec::name);
    if (found != config.extensions->networks.end()) return *found;
  }
  const bool is_path = model.find('/') != std::string::npos || model.ends_with(".toml");
  return is_path ? read_model_file(model) : built_in_model(model);
}

const CustomData* find_custom_data(const RunConfig& config) {
  if (config.extensions == nullptr) return nullptr;
  const auto found = std::ranges::find(config.extensions->data, config.data, &CustomData::name);
  if (found == config.extensions->data.end()) return nullptr;
  refuse_options_of_read_sets(config);
  return &*found;
}

DataPair open_custom(const CustomData& data, bool allow_unlabelled) {
  DataPair pair = data.open();
  if (!pair.train || pair.train->info().samples == 0) {
    throw Error(
        ErrorSource::input,
        fmt::format("the data set '{}' of this program holds no training samples: open() must give some", data.name));
  }
  const bool is_labelled = pair.train->info().labelled && (!pair.test || pair.test->info().labelled);
  if (!is_labelled && !allow_unlabelled) {
    throw Error(ErrorSource::input,
                fmt::format("the data set '{}' of this program has no labels: {} predict labels its images", data.name,
                            program_call()));
  }
  return pair;
}

std::span<const std::byte> LoadedBlock::bytes() const {
  if (shared.data() == nullptr) return own;
  return {static_cast<const std::byte*>(shared.data()), shared.bytes()};
}

LoadedBlock load_once(World& world, const DataRequest& request) {
  refuse_other_data_on_a_host(world, request);
  std::vector<std::byte> loaded;
  run_or_throw_on_all(world, [&] {
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
