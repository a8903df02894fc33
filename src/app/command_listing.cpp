#include "command_listing.hpp"

#include "tutti/app/program.hpp"
#include "tutti/base/process.hpp"
#include "tutti/nn/models.hpp"

#include "companion.hpp"
#include "option_choices.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// Names that an option's value may have besides paths.
std::vector<std::string> known_names(const std::string& option, const OwnParts* own) {
  std::vector<std::string> names;
  if (option == "model") {
    if (own != nullptr) {
      for (const NetworkSpec& network : own->networks) names.push_back(network.name);
    }
    for (std::string& name : built_in_model_names()) names.push_back(std::move(name));
  } else if (option == "data" || option == "source") {
    if (own != nullptr) {
      for (const OwnData& data : own->data) names.push_back(data.name);
    }
    names.emplace_back("glyphs");
  }
  return names;
}

Json listed(const CLI::Option& option, const char* command, const OwnParts* own) {
  const bool is_operand = option.get_positional();
  const std::string name = is_operand ? option.get_name(true) : option.get_lnames().front();
  const std::string type = option.get_type_name();  // "INT", or "INT:" and its bounds
  const std::string value = option.get_expected_max() > 0 ? type.substr(0, type.find(':')) : "";
  std::vector<std::string> choices;
  for (const std::string_view choice : choices_of(name, command)) choices.emplace_back(choice);
  if (name == "completion") choices = {"bash", "zsh", "fish"};
  const bool takes_paths = choices.empty() && value == "TEXT";
  return {{"name", name},
          {"group", option.get_group()},
          {"help", option.get_description()},
          {"value", value},  // TEXT, INT, FLOAT or LIST; empty: a flag
          {"default", option.get_default_str()},
          {"words", choices.empty() ? known_names(name, own) : choices},
          {"paths", takes_paths},
          {"required", option.get_required()},
          {"list", is_operand && option.get_expected_max() > 1}};
}

}  // namespace

std::string command_listing(const std::string& program, const OwnParts* own) {
  Json commands = Json::array();
  visit_commands(own, [&](const FurnishedCommand& furnished) {
    Json operands = Json::array();
    Json options = Json::array();
    for (const CLI::Option* option : furnished.app.get_options()) {
      if (option->get_group().empty()) continue;  // which help does not list, either
      (option->get_positional() ? operands : options).push_back(listed(*option, furnished.words, own));
    }
    commands.push_back(
        {{"words", furnished.words}, {"does", furnished.does}, {"operands", operands}, {"options", options}});
  });
  for (const Companion& companion : find_companions()) {
    commands.push_back(
        {{"words", companion.words}, {"does", what_it_does(companion)}, {"companion", companion.program.string()}});
  }
  return Json{{"program", program}, {"version", version()}, {"statuses", kStatuses}, {"commands", commands}}.dump();
}

}  // namespace tutti
