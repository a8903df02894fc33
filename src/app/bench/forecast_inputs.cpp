#include "forecast_inputs.hpp"

#include "tutti/base/error.hpp"

namespace tutti {

std::string forecast_inputs_text(const ForecastInputs&) { throw Error(ErrorSource::internal, "unfinished"); }
ForecastInputs parse_forecast_inputs(const std::string&, const std::string&) {
  throw Error(ErrorSource::internal, "unfinished");
}
ForecastInputs read_forecast_inputs(const std::string&) { throw Error(ErrorSource::internal, "unfinished"); }

}  // namespace tutti
