#include "manifest.hpp"

#include "tutti/base/error.hpp"

namespace tutti {

std::string manifest_text(const Manifest&) { throw Error(ErrorSource::internal, "unfinished"); }
Manifest parse_manifest(std::span<const std::byte>) { throw Error(ErrorSource::internal, "unfinished"); }

}  // namespace tutti
