// Configuration files, and their options as they are checked before a run; what is written of them must be read again.

#include "fuzz/parsed_input.hpp"
#include "option_table.hpp"
#include "run_config.hpp"

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = fuzz::text_of({data, size});
  RunConfig config;
  if (!fuzz::takes({ErrorSource::usage}, [&] { config = read_config_text(text, "run.toml"); })) return 0;
  fuzz::takes({ErrorSource::usage}, [&] {
    refuse_contradictions(config);
    refuse_without_out(config);
    if (config.exchange) resolve_options(config, {});
  });
  const std::string written = config_text(config);
  const RunConfig again = read_config_text(written, "written.toml");
  if (config_text(again) != written) fuzz::report("written otherwise after it was read");
  return 0;
}
