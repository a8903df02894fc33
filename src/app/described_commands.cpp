#include "described_commands.hpp"

#include "tutti/app/program.hpp"
#include "tutti/nn/models.hpp"

#include "option_choices.hpp"

#include <CLI/CLI.hpp>

#include <utility>

namespace tutti {
namespace {

// Names that help to begin with; files and folders serve as well.
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
  } else if (option == "completion") {
    names = {"bash", "zsh", "fish"};
  }
  return names;
}

bool has_no_other_names(const std::string& option) { return option == "completion"; }

DescribedOption described(const CLI::Option& option, const char* command, const OwnParts* own) {
  const bool is_operand = option.get_positional();
  const std::string type = option.get_type_name();  // "INT", or "INT:" and its bounds
  DescribedOption result{.name = is_operand ? option.get_name(true) : option.get_lnames().front(),
                         .group = option.get_group(),
                         .help = option.get_description(),
                         .value = option.get_expected_max() > 0 ? type.substr(0, type.find(':')) : "",
                         .default_value = option.get_default_str()};
  const auto choices = choices_of(result.name, command);
  result.words.assign(choices.begin(), choices.end());
  if (choices.empty()) result.words = known_names(result.name, own);
  result.takes_others = choices.empty() && !has_no_other_names(result.name) && result.value == "TEXT";
  result.is_required = option.get_required();
  result.is_list = is_operand && option.get_expected_max() > 1;
  return result;
}

}  // namespace

std::vector<DescribedCommand> describe_commands(const OwnParts* own) {
  std::vector<DescribedCommand> commands;
  visit_commands(own, [&](const FurnishedCommand& furnished) {
    DescribedCommand command{.words = furnished.words, .does = furnished.does};
    for (const CLI::Option* option : furnished.app.get_options()) {
      auto& list = option->get_positional() ? command.operands : command.options;
      list.push_back(described(*option, furnished.words, own));
    }
    commands.push_back(std::move(command));
  });
  return commands;
}

}  // namespace tutti
