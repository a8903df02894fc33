#include "link_fit.hpp"

#include "tutti/base/error.hpp"

namespace tutti {

Link fit_link(const std::vector<TimedSum>&, int) { throw Error(ErrorSource::internal, "unfinished"); }
double misfit(const Link&, const std::vector<TimedSum>&, int) { throw Error(ErrorSource::internal, "unfinished"); }
double all_reduce_seconds(const Link&, std::int64_t, int) { throw Error(ErrorSource::internal, "unfinished"); }

}  // namespace tutti
