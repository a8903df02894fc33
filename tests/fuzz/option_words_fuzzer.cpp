// Options whose values have their own grammar.

#include "tutti/data/image_recipe.hpp"
#include "tutti/data/part_map.hpp"
#include "tutti/watch/fault_spec.hpp"

#include "fuzz/parsed_input.hpp"
#include "run_config.hpp"
#include "sources.hpp"

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t which = fuzz::take_byte(input);
  const std::string text = fuzz::text_of(input);
  fuzz::takes({ErrorSource::usage}, [&] {
    switch (which % 8) {
      case 0:
        if (const auto counts = parse_part_map(text).parts_by_rank; !counts.empty()) {
          static_cast<void>(PartMap(counts).num_parts());
        }
        return;
      case 1:
        static_cast<void>(parse_time_limit(text));
        return;
      case 2:
        parse_checkpoint_every(text);
        return;
      case 3:
        parse_lr_period(text);
        return;
      case 4:
        parse_counts("ranks", text, 100'000);
        return;
      case 5:
        parse_synthetic(std::string(kSyntheticPrefix) + text);
        return;
      case 6:
        make_recipe({.normalize = text, .image_size = 0, .seed = 0}, {.name = "set", .image = {3, 8, 8}, .samples = 1});
        return;
      default:
        plan_faults(text, {.ranks = 3, .steps = {1, 40}, .buckets = 2, .tensors = {{"weights", "conv1/weight", 500}}});
    }
  });
  return 0;
}
