// Manifests of checkpoints, with a matching seal or with the seal of the input.

#include "checkpoint_format.hpp"
#include "fuzz/parsed_input.hpp"
#include "fuzz/sealed.hpp"

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string words = fuzz::text_of({data, size});
  for (const std::string& text : {words, fuzz::sealed(words)}) {
    fuzz::takes({ErrorSource::checkpoint, ErrorSource::input}, [&] {
      const Manifest manifest = parse_manifest(std::as_bytes(std::span(text)));
      const std::string again = manifest_text(manifest);
      if (parse_manifest(std::as_bytes(std::span(again))) != manifest)
        fuzz::report("written otherwise than it was read");
    });
  }
  return 0;
}
