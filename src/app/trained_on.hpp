#pragma once
// What a checkpoint tells of the data that its network was trained on, so that other data can be brought into the same
// form later. The text's format is checkpoint/checkpoint_store.hpp's.

#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/data/fitted_dataset.hpp"
#include "tutti/nn/network.hpp"

#include <optional>
#include <string>

namespace tutti {

std::string trained_on_text(const Network& network, const DatasetInfo& data);
// Nothing where an early version saved the checkpoint. Throws a checkpoint error that names it when its text is none.
std::optional<TrainedOn> trained_on(const LoadedCheckpoint& loaded);

}  // namespace tutti
