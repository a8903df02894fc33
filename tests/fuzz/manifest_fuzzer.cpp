// Manifests of checkpoints.

#include "checkpoint_format.hpp"
#include "fuzz/parsed_input.hpp"

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::takes({ErrorSource::checkpoint, ErrorSource::input}, [&] {
    const Manifest manifest = parse_manifest(std::as_bytes(std::span(data, size)));
    const std::string again = manifest_text(manifest);
    if (parse_manifest(std::as_bytes(std::span(again))) != manifest) fuzz::report("written otherwise than it was read");
  });
  return 0;
}
