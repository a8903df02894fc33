#pragma once
// The built-in networks: the model files in jobs/models, compiled in.

#include "tutti/nn/network_spec.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

std::vector<std::string> built_in_model_names();
// Throws a usage error that lists the names.
NetworkSpec built_in_model(std::string_view name);

}  // namespace tutti
