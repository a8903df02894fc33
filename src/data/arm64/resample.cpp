#include "resampling.hpp"

namespace tutti::resampling {

void resample(const Resampling& from) { resample_all(from); }

}  // namespace tutti::resampling
