// What a forecast is read from; what is written of it must be read again.

#include "bench/forecast_inputs.hpp"
#include "fuzz/parsed_input.hpp"

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = fuzz::text_of({data, size});
  ForecastInputs inputs;
  if (!fuzz::takes({ErrorSource::input}, [&] { inputs = parse_forecast_inputs(text, "forecast.json"); })) return 0;
  const std::string written = forecast_inputs_text(inputs);
  if (forecast_inputs_text(parse_forecast_inputs(written, "written.json")) != written) {
    fuzz::report("written otherwise after it was read");
  }
  return 0;
}
