#include "tutti/storage/image_arrays.hpp"

#include "tutti/base/error.hpp"

namespace tutti {

ImageArrays::ImageArrays(std::span<const std::byte> image, std::vector<StoredArray> arrays, std::string origin)
    : image_(image), arrays_(std::move(arrays)), origin_(std::move(origin)) {
  throw Error(ErrorSource::internal, "unfinished");
}

}  // namespace tutti
