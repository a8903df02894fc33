#include "tutti/nn/model_file.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/nn/network_spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace tutti {
namespace {

using TomlTable = toml::value::table_type;

[[noreturn]] void refuse(const toml::value& at, const std::string& why) {
  throw Error(ErrorSource::input,
              fmt::format("{}:{}: {}", at.location().file_name(), line_of_location(at.location()), why));
}

// One table of the file whose keys are asked for one by one; a key that nobody asked for is refused.
class KeyReader {
 public:
  KeyReader(const toml::value& value, std::string what) : value_(value), what_(std::move(what)) {
    if (!value.is_table()) refuse(value, fmt::format("{} must be a table", what_));
  }

  bool has(const std::string& key) const { return table().contains(key); }

  const toml::value& required(const std::string& key) {
    if (!has(key)) refuse(value_, fmt::format("{} lacks the key '{}'", what_, key));
    return taken(key);
  }

  std::string text(const std::string& key) {
    const toml::value& value = required(key);
    if (!value.is_string()) refuse(value, fmt::format("'{}' must be a text in quotes", key));
    return toml::get<std::string>(value);
  }

  std::int64_t number(const std::string& key, std::int64_t least = 1) {
    const toml::value& value = required(key);
    if (!value.is_integer() || value.as_integer() < least) {
      refuse(value, fmt::format("'{}' must be a whole number of {} or more", key, least));
    }
    return value.as_integer();
  }
  std::int64_t number_or(const std::string& key, std::int64_t otherwise, std::int64_t least = 1) {
    known_.insert(key);
    return has(key) ? number(key, least) : otherwise;
  }

  bool flag_or(const std::string& key, bool otherwise) {
    known_.insert(key);
    if (!has(key)) return otherwise;
    const toml::value& value = taken(key);
    if (!value.is_boolean()) refuse(value, fmt::format("'{}' must be true or false", key));
    return value.as_boolean();
  }

  double share(const std::string& key) {
    const toml::value& value = required(key);
    const double share = value.is_floating()  ? value.as_floating()
                         : value.is_integer() ? static_cast<double>(value.as_integer())
                                              : -1;
    if (!(share >= 0 && share < 1)) refuse(value, fmt::format("'{}' must be a number of at least 0 and below 1", key));
    return share;
  }

  // The name of a layer, or of the image.
  std::string source_or(const std::string& key, const std::set<std::string>& earlier) {
    known_.insert(key);
    if (!has(key)) return "";
    std::string name = text(key);
    if (name != kImageName && !earlier.contains(name)) {
      refuse(taken(key), fmt::format("'{}': no layer before this one is called '{}'", key, name));
    }
    return name;
  }

  void refuse_others() const {
    const toml::value* first = nullptr;
    std::string name;
    for (const auto& [key, value] : table()) {
      if (known_.contains(key)) continue;
      if (first == nullptr || line_of_location(value.location()) < line_of_location(first->location())) {
        first = &value;
        name = key;
      }
    }
    if (first != nullptr) {
      refuse(*first, fmt::format("{} has no key '{}'; it takes {}", what_, name, fmt::join(known_, ", ")));
    }
  }

 private:
  const TomlTable& table() const { return value_.as_table(); }
  const toml::value& taken(const std::string& key) {
    known_.insert(key);
    return table().at(key);
  }

  const toml::value& value_;
  std::string what_;
  std::set<std::string> known_;
};

std::int64_t units_of(KeyReader& keys) {
  const toml::value& units = keys.required("units");
  if (units.is_integer() && units.as_integer() >= 1) return units.as_integer();
  if (units.is_string() && toml::get<std::string>(units) == "classes") return kUnitsFromClasses;
  refuse(units, "'units' must be a whole number above 0, or \"classes\"");
}

// A layer's keys, read: given a spec of its type, whose values do not count. SpecText writes them.
struct SpecKeys {
  KeyReader& keys;

  LayerSpec operator()(const Conv2dSpec&) const {
    return Conv2dSpec{.channels = keys.number("channels"),
                      .kernel = keys.number("kernel"),
                      .stride = keys.number_or("stride", 1),
                      .padding = keys.number_or("padding", 0, 0),
                      .bias = keys.flag_or("bias", true),
                      .relu = keys.flag_or("relu", false)};
  }
  LayerSpec operator()(const Pool2dSpec& type) const {
    const std::int64_t kernel = keys.number("kernel");
    return Pool2dSpec{.pooling = type.pooling,
                      .kernel = kernel,
                      .stride = keys.number_or("stride", kernel),
                      .padding = keys.number_or("padding", 0, 0)};
  }
  LayerSpec operator()(const LinearSpec&) const {
    return LinearSpec{.units = units_of(keys), .bias = keys.flag_or("bias", true), .relu = keys.flag_or("relu", false)};
  }
  LayerSpec operator()(const BatchNormSpec&) const {
    return BatchNormSpec{.add = keys.flag_or("add", false), .relu = keys.flag_or("relu", false)};
  }
  LayerSpec operator()(const AddSpec&) const { return AddSpec{.relu = keys.flag_or("relu", false)}; }
  LayerSpec operator()(const GlobalAveragePoolSpec&) const { return GlobalAveragePoolSpec{}; }
  LayerSpec operator()(const DropoutSpec&) const { return DropoutSpec{.rate = keys.share("rate")}; }
};

// A spec of each type that type_name() tells apart.
constexpr std::array<LayerSpec, 8> kLayerTypes{Conv2dSpec{},
                                               Pool2dSpec{.pooling = Pooling::max},
                                               Pool2dSpec{.pooling = Pooling::average},
                                               LinearSpec{},
                                               BatchNormSpec{},
                                               AddSpec{},
                                               GlobalAveragePoolSpec{},
                                               DropoutSpec{}};

template <std::size_t... indices>
constexpr bool has_all_layers(std::index_sequence<indices...>) {
  const auto has = [](std::size_t index) {
    return std::ranges::any_of(kLayerTypes, [&](const LayerSpec& spec) { return spec.index() == index; });
  };
  return (has(indices) && ...);
}
static_assert(has_all_layers(std::make_index_sequence<std::variant_size_v<LayerSpec>>()),
              "a layer that kLayerTypes lacks could be written in no model file");

LayerSpec read_spec(KeyReader& keys) {
  const std::string word = keys.text("type");
  std::vector<std::string_view> words;
  for (const LayerSpec& type : kLayerTypes) {
    if (type_name(type) == word) return std::visit(SpecKeys{keys}, type);
    words.push_back(type_name(type));
  }
  refuse(keys.required("type"), fmt::format("'{}' is no layer type: {}", word, fmt::join(words, ", ")));
}

// Keys that only some layers take are asked for only there, so that they are refused elsewhere.
void read_sources(KeyReader& keys, LayerNode& node, const std::set<std::string>& earlier) {
  node.input = keys.source_or("input", earlier);
  if (!takes_residual(node.spec)) return;
  keys.required("residual");
  node.residual = keys.source_or("residual", earlier);
}

constexpr std::size_t kLongestLayerName = 900;

bool is_layer_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.front() != '.' && std::ranges::all_of(name, allowed);
}

LayerNode read_layer(const toml::value& value, std::size_t number, std::set<std::string>& names) {
  KeyReader keys(value, fmt::format("layer {}", number));
  LayerNode node;
  node.name = keys.text("name");
  if (!is_layer_name(node.name)) {
    refuse(keys.required("name"),
           fmt::format("'{}' is no layer name: use letters, digits, '.', '_' and '-'", node.name));
  }
  if (node.name.size() > kLongestLayerName) {
    refuse(keys.required("name"),
           fmt::format("a layer's name has {} characters, {} at most: checkpoints could not hold "
                       "it",
                       node.name.size(), kLongestLayerName));
  }
  if (node.name == kImageName) refuse(keys.required("name"), "'image' is the name of the image itself");
  if (names.contains(node.name)) {
    refuse(keys.required("name"), fmt::format("two layers are called '{}'", node.name));
  }
  node.spec = read_spec(keys);
  read_sources(keys, node, names);
  keys.refuse_others();
  names.insert(node.name);
  return node;
}

NetworkSpec read_network(const toml::value& root) {
  KeyReader keys(root, "the model");
  NetworkSpec network;
  network.name = keys.text("name");
  if (keys.has("init")) {
    const std::string word = keys.text("init");
    const auto initializer = value_named<Initializer>(word);
    if (!initializer) {
      refuse(keys.required("init"),
             fmt::format("'{}' is no initialiser: it is one of {}", word, fmt::join(enum_names(Initializer{}), ", ")));
    }
    network.initializer = *initializer;
  }
  const toml::value& layers = keys.required("layer");
  if (!layers.is_array()) refuse(layers, "layers are written as [[layer]], one table each");
  std::set<std::string> names;
  for (const toml::value& layer : layers.as_array()) {
    network.layers.push_back(read_layer(layer, network.layers.size() + 1, names));
  }
  keys.refuse_others();
  return network;
}

std::string flags_text(bool bias, bool relu) {
  return fmt::format("{}{}", bias ? "" : "bias = false\n", relu ? "relu = true\n" : "");
}

// A layer's keys, written: those that SpecKeys would not fill in.
struct SpecText {
  std::string operator()(const Conv2dSpec& s) const {
    std::string text = fmt::format("channels = {}\nkernel = {}\n", s.channels, s.kernel);
    if (s.stride != 1) text += fmt::format("stride = {}\n", s.stride);
    if (s.padding != 0) text += fmt::format("padding = {}\n", s.padding);
    return text + flags_text(s.bias, s.relu);
  }
  std::string operator()(const Pool2dSpec& s) const {
    std::string text = fmt::format("kernel = {}\n", s.kernel);
    if (s.stride != s.kernel) text += fmt::format("stride = {}\n", s.stride);
    if (s.padding != 0) text += fmt::format("padding = {}\n", s.padding);
    return text;
  }
  std::string operator()(const LinearSpec& s) const {
    const std::string units = s.units == kUnitsFromClasses ? "\"classes\"" : fmt::format("{}", s.units);
    return fmt::format("units = {}\n{}", units, flags_text(s.bias, s.relu));
  }
  std::string operator()(const BatchNormSpec& s) const {
    return fmt::format("{}{}", s.add ? "add = true\n" : "", s.relu ? "relu = true\n" : "");
  }
  std::string operator()(const AddSpec& s) const { return s.relu ? "relu = true\n" : ""; }
  std::string operator()(const GlobalAveragePoolSpec&) const { return ""; }
  std::string operator()(const DropoutSpec& s) const { return fmt::format("rate = {}\n", s.rate); }
};

std::string source_text(std::string_view key, std::string_view name) {
  return name.empty() ? "" : fmt::format("{} = \"{}\"\n", key, name);
}

// The first line of the library's message carries its reason; the rest draws the place, which we name ourselves.
std::string first_line(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  if (const auto mark = text.find("] "); mark != std::string_view::npos) text.remove_prefix(mark + 2);
  return std::string(text);
}

}  // namespace

NetworkSpec parse_model(const std::string& text, const std::string& origin) {
  if (const auto fault = find_toml_problem(text)) {
    throw Error(ErrorSource::input, fmt::format("{}:{}: {}", origin, fault->line, fault->message));
  }
  try {
    std::istringstream stream(text);
    return read_network(toml::parse(stream, origin));
  } catch (const toml::syntax_error& error) {
    throw Error(ErrorSource::input, fmt::format("{}:{}: {}", origin, line_of_error(error), first_line(error.what())));
  } catch (const std::exception& error) {
    if (dynamic_cast<const Error*>(&error) != nullptr) throw;
    throw Error(ErrorSource::input, fmt::format("{}: {}", origin, first_line(error.what())));
  }
}

NetworkSpec read_model_file(const std::string& path) {
  constexpr std::uintmax_t kMaxBytes = std::uintmax_t{64} << 20;
  std::error_code unseen;
  const auto status = std::filesystem::status(path, unseen);
  // A pipe may have no end, and nobody who writes to it.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw Error(ErrorSource::io, fmt::format("cannot read the model file {}: it is no regular file", path));
  }
  const std::uintmax_t bytes = std::filesystem::file_size(path, unseen);
  if (!unseen && bytes > kMaxBytes) {
    throw Error(ErrorSource::input, fmt::format("the model file {} has {} bytes, and {} at most are read: is the path "
                                                "right?",
                                                path, bytes, kMaxBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || text.bad()) {
    throw Error(ErrorSource::io, fmt::format("cannot read the model file {}: is the path right?", path));
  }
  return parse_model(text.str(), path);
}

std::string model_text(const NetworkSpec& network) {
  std::string text =
      fmt::format("name = {}\ninit = \"{}\"\n", toml::format(toml::value(network.name)), name_of(network.initializer));
  for (const LayerNode& node : network.layers) {
    text += fmt::format("\n[[layer]]\nname = \"{}\"\ntype = \"{}\"\n{}{}{}", node.name, type_name(node.spec),
                        source_text("input", node.input), source_text("residual", node.residual),
                        std::visit(SpecText{}, node.spec));
  }
  return text;
}

}  // namespace tutti
