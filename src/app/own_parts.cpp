#include "own_parts.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/nn/models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace tutti {
namespace {

void refuse_options_of_read_sets(const RunConfig& config) {
  const bool reads_test = !config.test_data.empty();
  if (!reads_test && config.validation_ratio == 0) return;
  throw Error(ErrorSource::usage,
              fmt::format("{} is for data that are read from files, and --data {} is this program's own, with a test "
                          "set of its own or none: leave the option out",
                          reads_test ? "--test-data" : "--validation-ratio", config.data));
}

}  // namespace

NetworkSpec choose_model(const RunConfig& config) {
  const std::string& model = config.model;
  if (config.own != nullptr) {
    const auto found = std::ranges::find(config.own->networks, model, &NetworkSpec::name);
    if (found != config.own->networks.end()) return *found;
  }
  const bool is_path = model.find('/') != std::string::npos || model.ends_with(".toml");
  return is_path ? read_model_file(model) : built_in_model(model);
}

const OwnData* find_own_data(const RunConfig& config) {
  if (config.own == nullptr) return nullptr;
  const auto found = std::ranges::find(config.own->data, config.data, &OwnData::name);
  if (found == config.own->data.end()) return nullptr;
  refuse_options_of_read_sets(config);
  return &*found;
}

DataPair open_own(const OwnData& data, bool unlabelled_too) {
  DataPair pair = data.open();
  if (!pair.train || pair.train->info().samples == 0) {
    throw Error(
        ErrorSource::input,
        fmt::format("the data set '{}' of this program holds no training samples: open() must give some", data.name));
  }
  const bool is_labelled = pair.train->info().labelled && (!pair.test || pair.test->info().labelled);
  if (!is_labelled && !unlabelled_too) {
    throw Error(ErrorSource::input,
                fmt::format("the data set '{}' of this program has no labels: {} predict labels its images", data.name,
                            program_call()));
  }
  return pair;
}

}  // namespace tutti
