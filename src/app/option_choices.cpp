#include "option_choices.hpp"

#include <algorithm>
#include <array>

namespace tutti {
namespace {

constexpr std::array<std::string_view, 2> kSwitch{"on", "off"};
constexpr std::array<std::string_view, 4> kAugment{"none", "crop-flip", "pad-crop-flip", "resized-crop"};
constexpr std::array<std::string_view, 4> kComm{"auto", "solo", "mpi", "nccl"};
constexpr std::array<std::string_view, 3> kDevice{"auto", "cpu", "cuda"};
constexpr std::array<std::string_view, 5> kExchange{"auto", "ring", "exact", "sharded", "central"};
constexpr std::array<std::string_view, 4> kInit{"model", "normal", "xavier", "kaiming"};
constexpr std::array<std::string_view, 3> kLastBatch{"keep", "discard", "rollover"};
constexpr std::array<std::string_view, 3> kMode{"strong", "weak", "both"};
constexpr std::array<std::string_view, 2> kNoDecay{"none", "norms-biases"};
constexpr std::array<std::string_view, 3> kOn{"test", "train", "any"};
constexpr std::array<std::string_view, 3> kOnOfPredict{"test", "train", "all"};
constexpr std::array<std::string_view, 1> kOnDivergence{"stop"};
constexpr std::array<std::string_view, 2> kOnNonfinite{"stop", "skip"};
constexpr std::array<std::string_view, 3> kOptimizer{"sgd", "adamw", "lars"};
constexpr std::array<std::string_view, 3> kPrecision{"fp32", "tf32", "bf16"};
constexpr std::array<std::string_view, 3> kProgress{"auto", "always", "never"};
constexpr std::array<std::string_view, 3> kSchedule{"constant", "step", "cosine"};
constexpr std::array<std::string_view, 3> kShuffle{"global", "partition", "none"};

struct OptionChoices {
  std::string_view option;
  std::span<const std::string_view> words;
  std::string_view command{};  // that alone has these; empty: any other
};

constexpr std::array<OptionChoices, 21> kChoices{{{"augment", kAugment},
                                                  {"exif", kSwitch},
                                                  {"comm", kComm},
                                                  {"device", kDevice},
                                                  {"exchange", kExchange},
                                                  {"init", kInit},
                                                  {"last-batch", kLastBatch},
                                                  {"mode", kMode},
                                                  {"no-decay", kNoDecay},
                                                  {"on", kOnOfPredict, "predict"},
                                                  {"on", kOn},
                                                  {"on-divergence", kOnDivergence},
                                                  {"on-nonfinite", kOnNonfinite},
                                                  {"optimizer", kOptimizer},
                                                  {"precision", kPrecision},
                                                  {"progress", kProgress},
                                                  {"record-steps", kSwitch},
                                                  {"schedule", kSchedule},
                                                  {"search-plans", kSwitch},
                                                  {"shuffle", kShuffle},
                                                  {"tiled-convolutions", kSwitch}}};

}  // namespace

std::span<const std::string_view> choices_of(std::string_view option, std::string_view command) {
  const auto found = std::ranges::find_if(kChoices, [&](const OptionChoices& choices) {
    return choices.option == option && (choices.command.empty() || choices.command == command);
  });
  return found == kChoices.end() ? std::span<const std::string_view>{} : found->words;
}

}  // namespace tutti
