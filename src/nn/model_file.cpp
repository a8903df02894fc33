#include "tutti/nn/model_file.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/nn/network_spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
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

  // Whether the table has this key, which it may have.
  bool knows(const std::string& key) {
    known_.insert(key);
    return table().contains(key);
  }

  const toml::value& required(const std::string& key) {
    if (!knows(key)) refuse(value_, fmt::format("{} lacks the key '{}'", what_, key));
    return table().at(key);
  }

  std::string text(const std::string& key) {
    const toml::value& value = required(key);
    if (!value.is_string()) refuse(value, fmt::format("'{}' must be a text in quotes", key));
    return toml::get<std::string>(value);
  }

  void number(const std::string& key, std::int64_t& number, std::int64_t min = 1) {
    const toml::value& value = required(key);
    if (!value.is_integer() || value.as_integer() < min) {
      refuse(value, fmt::format("'{}' must be a whole number of {} or more", key, min));
    }
    number = value.as_integer();
  }
  void number_or(const std::string& key, std::int64_t& number, std::int64_t otherwise, std::int64_t min = 1) {
    number = otherwise;
    if (knows(key)) this->number(key, number, min);
  }

  void flag_or(const std::string& key, bool& flag, bool otherwise) {
    flag = otherwise;
    if (!knows(key)) return;
    const toml::value& value = required(key);
    if (!value.is_boolean()) refuse(value, fmt::format("'{}' must be true or false", key));
    flag = value.as_boolean();
  }

  void share(const std::string& key, double& share) {
    real(key, share);
    if (share >= 0 && share < 1) return;
    refuse(required(key), fmt::format("'{}' must be a number of at least 0 and below 1", key));
  }

  void real(const std::string& key, double& number) {
    const toml::value& value = required(key);
    if (!value.is_floating() && !value.is_integer()) refuse(value, fmt::format("'{}' must be a number", key));
    number = value.is_floating() ? value.as_floating() : static_cast<double>(value.as_integer());
  }
  void real_or(const std::string& key, double& number, double otherwise) {
    number = otherwise;
    if (knows(key)) real(key, number);
  }

  // Names out of those of an enumeration; none if the key is missing.
  template <class Enum>
  std::vector<Enum> names(const std::string& key, const char* what) {
    std::vector<Enum> found;
    if (!knows(key)) return found;
    const toml::value& list = required(key);
    if (!list.is_array()) refuse(list, fmt::format("'{}' must be a list, as [\"{}\"]", key, name_of(Enum{})));
    for (const toml::value& value : list.as_array()) {
      found.push_back(name<Enum>(value, what));
      if (std::ranges::count(found, found.back()) > 1)
        refuse(value, fmt::format("'{}' is listed twice", name_of(found.back())));
    }
    return found;
  }
  template <class Enum>
  std::optional<Enum> name_or_none(const std::string& key, const char* what) {
    return knows(key) ? std::optional(name<Enum>(required(key), what)) : std::nullopt;
  }

  void units(std::int64_t& units) {
    const toml::value& value = required("units");
    const bool from_classes = value.is_string() && toml::get<std::string>(value) == "classes";
    if (!from_classes && !(value.is_integer() && value.as_integer() >= 1)) {
      refuse(value, "'units' must be a whole number above 0, or \"classes\"");
    }
    units = from_classes ? kUnitsFromClasses : value.as_integer();
  }

  // The name of a layer, or of the image.
  std::string source_or(const std::string& key, const std::set<std::string>& earlier) {
    if (!knows(key)) return "";
    std::string name = text(key);
    if (name != kImageName && !earlier.contains(name)) {
      refuse(required(key), fmt::format("'{}': no layer before this one is called '{}'", key, name));
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

  template <class Enum>
  static Enum name(const toml::value& value, const char* what) {
    const std::string word = value.is_string() ? toml::get<std::string>(value) : std::string();
    const auto found = value_named<Enum>(word);
    if (!found) {
      refuse(value, fmt::format("'{}' is no {}: it is one of {}", word, what, fmt::join(enum_names(Enum{}), ", ")));
    }
    return *found;
  }

  const toml::value& value_;
  std::string what_;
  std::set<std::string> known_;
};

// Writes the keys of a layer, except those that KeyReader would fill in with the same value.
struct KeyWriter {
  void number(std::string_view key, std::int64_t number) { text += fmt::format("{} = {}\n", key, number); }
  void number_or(std::string_view key, std::int64_t number, std::int64_t otherwise, std::int64_t /*min*/ = 1) {
    if (number != otherwise) this->number(key, number);
  }
  void flag_or(std::string_view key, bool flag, bool otherwise) {
    if (flag != otherwise) text += fmt::format("{} = {}\n", key, flag);
  }
  void real(std::string_view key, double number) { text += fmt::format("{} = {}\n", key, number); }
  void real_or(std::string_view key, double number, double otherwise) {
    if (number != otherwise) real(key, number);
  }
  void share(std::string_view key, double share) { real(key, share); }
  void units(std::int64_t units) {
    text += units == kUnitsFromClasses ? "units = \"classes\"\n" : fmt::format("units = {}\n", units);
  }

  std::string text;
};

// The keys of each layer in order, for a KeyReader or a KeyWriter.
template <class Keys>
struct SpecKeys {
  Keys& keys;

  void operator()(Conv2dSpec& spec) const {
    keys.number("channels", spec.channels);
    keys.number("kernel", spec.kernel);
    keys.number_or("stride", spec.stride, 1);
    keys.number_or("padding", spec.padding, 0, 0);
    keys.flag_or("bias", spec.bias, true);
    keys.flag_or("relu", spec.relu, false);
    keys.number_or("groups", spec.groups, 1);
    keys.number_or("dilation", spec.dilation, 1);
  }
  void operator()(Pool2dSpec& spec) const {
    keys.number("kernel", spec.kernel);
    keys.number_or("stride", spec.stride, spec.kernel);
    keys.number_or("padding", spec.padding, 0, 0);
  }
  void operator()(LinearSpec& spec) const {
    keys.units(spec.units);
    keys.flag_or("bias", spec.bias, true);
    keys.flag_or("relu", spec.relu, false);
  }
  void operator()(BatchNormSpec& spec) const {
    const BatchNormSpec usual;
    keys.flag_or("add", spec.add, false);
    keys.flag_or("relu", spec.relu, false);
    keys.real_or("momentum", spec.momentum, usual.momentum);
    keys.real_or("epsilon", spec.epsilon, usual.epsilon);
  }
  void operator()(AddSpec& spec) const { keys.flag_or("relu", spec.relu, false); }
  void operator()(GlobalAveragePoolSpec&) const {}
  void operator()(DropoutSpec& spec) const { keys.share("rate", spec.rate); }
  void operator()(ElementwiseSpec& spec) const {
    if (spec.function == Function::scale) keys.real("factor", spec.factor);
  }
};

// A spec of each type that type_name() distinguishes, but those of the functions.
constexpr LayerSpec kLayerTypes[] = {Conv2dSpec{},
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
    return index == LayerSpec(ElementwiseSpec{}).index() ||
           std::ranges::any_of(kLayerTypes, [&](const LayerSpec& spec) { return spec.index() == index; });
  };
  return (has(indices) && ...);
}
static_assert(has_all_layers(std::make_index_sequence<std::variant_size_v<LayerSpec>>()),
              "a layer that kLayerTypes lacks could be written in no model file");

LayerSpec read_spec(KeyReader& keys) {
  const std::string word = keys.text("type");
  std::vector<LayerSpec> types(std::begin(kLayerTypes), std::end(kLayerTypes));
  for (const std::string_view name : enum_names(Function{})) {
    types.push_back(ElementwiseSpec{*value_named<Function>(name)});
  }
  std::vector<std::string_view> words;
  for (const LayerSpec& type : types) {
    words.push_back(type_name(type));
    if (words.back() != word) continue;
    LayerSpec spec = type;
    std::visit(SpecKeys<KeyReader>{keys}, spec);
    return spec;
  }
  refuse(keys.required("type"), fmt::format("'{}' is no layer type: {}", word, fmt::join(words, ", ")));
}

constexpr std::size_t kLongestLayerName = 900;

constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

LayerNode read_layer(const toml::value& value, std::size_t number, std::set<std::string>& names) {
  KeyReader keys(value, fmt::format("layer {}", number));
  LayerNode node{.name = keys.text("name"), .spec = {}};
  const toml::value& name = keys.required("name");
  if (node.name.empty() || node.name.front() == '.' || node.name.find_first_not_of(kNameCharacters) != node.name.npos) {
    refuse(name, fmt::format("'{}' is no layer name: use letters, digits, '.', '_' and '-'", node.name));
  }
  if (node.name.size() > kLongestLayerName) {
    refuse(name, fmt::format("a layer's name has {} characters, {} at most: checkpoints could not hold it",
                             node.name.size(), kLongestLayerName));
  }
  if (node.name == kImageName) refuse(name, "'image' is the name of the image itself");
  if (names.contains(node.name)) refuse(name, fmt::format("two layers are called '{}'", node.name));
  node.spec = read_spec(keys);
  node.input = keys.source_or("input", names);
  if (takes_residual(node.spec)) {  // asked for only here, so that it is refused elsewhere
    keys.required("residual");
    node.residual = keys.source_or("residual", names);
  }
  node.initializer = keys.name_or_none<LayerInitializer>("init", "initializer");
  node.frozen = keys.names<ParameterKind>("frozen", "kind of parameters");
  keys.refuse_others();
  names.insert(node.name);
  return node;
}

NetworkSpec read_network(const toml::value& root) {
  KeyReader keys(root, "the model");
  NetworkSpec network;
  network.name = keys.text("name");
  network.initializer = keys.name_or_none<Initializer>("init", "initializer").value_or(network.initializer);
  const toml::value& layers = keys.required("layer");
  if (!layers.is_array()) refuse(layers, "layer is a list, with {name = ..., type = ...} for each layer");
  std::set<std::string> names;
  for (const toml::value& layer : layers.as_array()) {
    network.layers.push_back(read_layer(layer, network.layers.size() + 1, names));
  }
  keys.refuse_others();
  return network;
}

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
  } catch (const Error&) {
    throw;
  } catch (const toml::syntax_error& error) {
    throw Error(ErrorSource::input, fmt::format("{}:{}: {}", origin, line_of_error(error), first_line(error.what())));
  } catch (const std::exception& error) {
    throw Error(ErrorSource::input, fmt::format("{}: {}", origin, first_line(error.what())));
  }
}

NetworkSpec read_model_file(const std::string& path) {
  std::error_code unseen;
  const auto status = std::filesystem::status(path, unseen);
  // A pipe may have no end, and nobody who writes to it.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw Error(ErrorSource::io, fmt::format("cannot read the model file {}: it is no regular file", path));
  }
  const std::uintmax_t bytes = std::filesystem::file_size(path, unseen);
  if (!unseen && bytes > kMaxTomlBytes) {
    throw Error(ErrorSource::input, fmt::format("the model file {} has {} bytes, and {} at most are read: is the path "
                                                "right?",
                                                path, bytes, kMaxTomlBytes));
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
  std::string text = fmt::format("name = {}\ninit = \"{}\"\n", toml_text(network.name), name_of(network.initializer));
  for (const LayerNode& node : network.layers) {
    LayerSpec spec = node.spec;
    KeyWriter keys;
    std::visit(SpecKeys<KeyWriter>{keys}, spec);
    text += fmt::format("\n[[layer]]\nname = \"{}\"\ntype = \"{}\"\n{}{}{}", node.name, type_name(node.spec),
                        source_text("input", node.input), source_text("residual", node.residual), keys.text);
    if (node.initializer) text += source_text("init", name_of(*node.initializer));
    std::vector<std::string> frozen;
    for (const ParameterKind kind : node.frozen) frozen.push_back(fmt::format("\"{}\"", name_of(kind)));
    if (!frozen.empty()) text += fmt::format("frozen = [{}]\n", fmt::join(frozen, ", "));
  }
  return text;
}

}  // namespace tutti
