#include "checkpoint_file.hpp"

#include "tutti/base/error.hpp"

namespace tutti {

StoredImage checkpoint_image(const TrainState&) { throw Error(ErrorSource::internal, "unfinished"); }
TrainState state_of(std::span<const ImageArrays>) { throw Error(ErrorSource::internal, "unfinished"); }
TrainState state_of(const ArrayFile&) { throw Error(ErrorSource::internal, "unfinished"); }

}  // namespace tutti
