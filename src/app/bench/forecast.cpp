#include "forecast.hpp"

#include "tutti/base/error.hpp"

namespace tutti {

ForecastPoint forecast(const ForecastInputs&, const ForecastQuestion&, int) {
  throw Error(ErrorSource::internal, "unfinished");
}
std::vector<int> parse_forecast_ranks(const std::string&) { throw Error(ErrorSource::internal, "unfinished"); }
std::optional<int> stops_paying(const ForecastInputs&, const ForecastQuestion&, int) {
  throw Error(ErrorSource::internal, "unfinished");
}
std::string forecast_inputs_table(const ForecastInputs&) { throw Error(ErrorSource::internal, "unfinished"); }
std::string forecast_table(const std::vector<ForecastPoint>&, const ForecastQuestion&) {
  throw Error(ErrorSource::internal, "unfinished");
}

}  // namespace tutti
