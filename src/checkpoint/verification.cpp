#include "verification.hpp"

#include "tutti/base/error.hpp"

namespace tutti {

std::string manifest_path(const std::string&) { throw Error(ErrorSource::internal, "unfinished"); }
CheckpointBytes read_checkpoint_bytes(const std::string&) { throw Error(ErrorSource::internal, "unfinished"); }
TrainState state_of(const CheckpointBytes&, const std::string&) { throw Error(ErrorSource::internal, "unfinished"); }

}  // namespace tutti
