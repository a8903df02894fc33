// Model files, and the shapes of the network that they describe; what is written of them must be read again.

#include "tutti/nn/model_file.hpp"
#include "tutti/nn/network.hpp"

#include "fuzz/parsed_input.hpp"

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = fuzz::text_of({data, size});
  fuzz::takes({ErrorSource::input}, [&] {
    const NetworkSpec spec = parse_model(text, "model.toml");
    const std::string written = model_text(spec);
    if (model_text(parse_model(written, "written.toml")) != written) {
      fuzz::report("written otherwise after it was read");
    }
    static_cast<void>(Network(spec, Shape{3, 32, 32}, 10).multiply_adds());
  });
  return 0;
}
