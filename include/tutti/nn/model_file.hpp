#pragma once
// Networks as text. A model file is TOML:
//
//   name = "lenet"
//   init = "kaiming"           # normal, xavier or kaiming; xavier when left out
//
//   [[layer]]                  # one table per layer, in order
//   name = "conv1"             # letters, digits, '.', '_' and '-'; used once
//   type = "conv2d"            # channels, kernel; stride = 1, padding = 0, bias = true, relu = false, groups = 1,
//                              # dilation = 1
//   channels = 20
//   kernel = 3
//   relu = true
//
// Other types: "max-pool2d" and "average-pool2d" (kernel; stride = kernel, padding = 0), "linear" (units, a number or
// "classes"; bias = true, relu = false), "batch-norm" (add = false, relu = false, momentum = 0.1, epsilon = 1e-5),
// "add" (relu = false), "global-average-pool", "dropout" (rate), and each Function, of which "scale" takes a factor.
// A layer takes the output of the one before it, or of the earlier layer named as `input`; "image" names the image.
// "add", and "batch-norm" with add = true, add the output of the earlier layer named as `residual`.
// Layers with parameters also have `init`, the initial weight (LayerInitializer), and `frozen`, a list of the kinds of
// parameters that are not trained, as ["weight"].

#include "tutti/nn/network_spec.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Throws an input error that names the file, the line and the key, and what would be right there.
NetworkSpec parse_model(const std::string& text, const std::string& origin);
// The same from a file. Throws an io error when it cannot be read.
NetworkSpec read_model_file(const std::string& path);
// The text from which parse_model gives the same network again.
std::string model_text(const NetworkSpec& network);

// The built-in networks: the model files in jobs/models, compiled in.
std::vector<std::string> built_in_model_names();
// Throws a usage error that lists the names.
NetworkSpec built_in_model(std::string_view name);

}  // namespace tutti
