#pragma once
// A short training that saves every other step, its result without faults, and the properties that must hold after a
// fault.

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "support/child_process.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {

using Environment = std::map<std::string, std::string>;

constexpr int kHasHung = 124;

inline ChildResult run_saving(const std::string& out, const Environment& environment = {}) {
  const Words options = words_of(
      "--data synthetic:64x1x4x4:4 --model mlp --batch-size 16 --steps 8 --momentum 0.9 --threads 1 --quiet "
      "--checkpoint-every 2 --keep-checkpoints 2 --resume --out");
  return run_child(with({"timeout", "60", std::getenv("TUTTI_TRAINER")}, with(options, {out})), environment);
}

// The step and digest of a state.
using Saved = std::pair<std::int64_t, std::uint64_t>;

inline Saved saved(const TrainState& state) {
  std::uint64_t sum = 0;
  for (const auto* arrays : {&state.parameters, &state.statistics, &state.optimizer}) {
    for (const NamedArray& array : *arrays) sum += digest(array.name, std::span<const float>(array.values));
  }
  return {state.progress.step, sum};
}

inline std::optional<Saved> newest_good(const std::string& out) {
  const CheckpointStore store(out + "/checkpoints");
  auto steps = store.steps();
  for (; !steps.empty(); steps.pop_back()) {
    try {
      return saved(load_checkpoint(store.path_of(steps.back())).state);
    } catch (const Error&) {
      continue;
    }
  }
  return std::nullopt;
}

inline Saved result_without_faults() {
  static const Saved end = [] {
    const ScratchFolder folder;
    const ChildResult run = run_saving(folder.path());
    const auto newest = newest_good(folder.path());
    if (run.status != 0 || !newest) throw std::runtime_error("the run without faults failed: " + run.err);
    return *newest;
  }();
  return end;
}

// After any failure, a resume on a disk without faults must lead to the same result.
inline void expect_good_end(const std::string& out, const ChildResult& run) {
  if (run.status != 0) {
    const ChildResult resumed = run_saving(out);
    EXPECT_EQ(resumed.status, 0) << resumed.err;
  }
  EXPECT_EQ(newest_good(out), result_without_faults());
}

}  // namespace tutti::test
