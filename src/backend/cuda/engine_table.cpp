#include "backend/cuda/engine_table.hpp"

#include <fmt/format.h>

#include <sstream>

namespace tutti::cuda {
namespace {

constexpr std::string_view kSeparator = " | ";
constexpr std::string_view kUntimed = " untimed";

std::string text_of(const EngineChoice& choice) {
  std::string text = std::to_string(choice.engine);
  for (const EngineKnob& knob : choice.knobs) text += fmt::format(" {}={}", knob.type, knob.value);
  return text;
}

// Lines come from files that users may have edited.
std::optional<EngineChoice> choice_in(std::string text) {
  if (text.ends_with(kUntimed)) text.erase(text.size() - kUntimed.size());
  std::istringstream stream(text);
  EngineChoice choice;
  if (!(stream >> choice.engine)) return {};
  EngineKnob knob;
  char equals = 0;
  while (stream >> knob.type >> equals >> knob.value && equals == '=') choice.knobs.push_back(knob);
  const bool complete = text_of(choice) == text;
  return complete ? std::optional(choice) : std::nullopt;
}

}  // namespace

std::string describe(ConvolutionPass pass, const ConvolutionShape& shape) {
  std::string text = fmt::format("{} {} {}x{}x{}x{} to {}, {}x{} stride {} padding {}", name_of(pass),
                                 name_of(shape.precision), shape.samples, shape.height, shape.width, shape.channels,
                                 shape.outputs, shape.kernel_height, shape.kernel_width, shape.stride, shape.padding);
  if (shape.groups != 1) text += fmt::format(" groups {}", shape.groups);
  if (shape.dilation != 1) text += fmt::format(" dilation {}", shape.dilation);
  return text;
}

EngineTable::EngineTable(const EngineOwner& owner)
    : owner_(fmt::format("{}{}{}{}", owner.library, kSeparator, owner.device, kSeparator)) {}

std::optional<EngineChoice> EngineTable::find(const std::string& description) const {
  const auto found = chosen_.find(description);
  return found == chosen_.end() ? std::nullopt : choice_in(found->second);
}

void EngineTable::note(const std::string& description, const EngineChoice& choice, ChosenBy by) {
  chosen_[description] = text_of(choice);
  if (by == ChosenBy::proposal) chosen_[description] += kUntimed;
}

std::string EngineTable::text() const {
  std::string text;
  for (const auto& [description, choice] : chosen_) {
    text += fmt::format("{}{}{}{}\n", owner_, description, kSeparator, choice);
  }
  return text;
}

bool EngineTable::adopt(const std::string& text) {
  bool used = text.empty();
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t end = line.rfind(kSeparator);
    if (!line.starts_with(owner_) || end < owner_.size()) continue;
    chosen_[line.substr(owner_.size(), end - owner_.size())] = line.substr(end + kSeparator.size());
    used = true;
  }
  return used;
}

}  // namespace tutti::cuda
