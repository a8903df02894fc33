#pragma once
// Looks for cores and GPUs that compute wrong results. Each trains small networks, always from the same weights and
// images, and digests what every layer writes. Units of one kind must come to the same digests, and each unit must
// come to its own again.

#include "tutti/backend/backend.hpp"
#include "tutti/base/enum_names.hpp"
#include "tutti/watch/fault_spec.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// A core or a GPU, and what it computed.
struct ScreenedUnit {
  std::string host;
  std::string name;                      // "core 3", "GPU 0"
  std::string kind;                      // of its processor, as processor_kind() names it
  std::vector<std::uint64_t> digests{};  // of the first round, in the order in which they were computed
  std::optional<std::size_t> changed{};  // index of the first digest that a later round did not repeat
  std::int64_t rounds = 0;
  double step_seconds = 0;      // median, with the digests
  double bytes_per_second = 0;  // of memory, median
};

// Of each tensor in the test of a core's memory: more than its share of the caches.
inline constexpr std::size_t kScreenedBytes = std::size_t{16} << 20;

// How to screen a unit.
struct ScreenPlan {
  std::string host;
  std::string name;
  std::optional<int> core{};  // to which the unit's thread is bound
  std::size_t memory_bytes = kScreenedBytes;
  std::function<std::unique_ptr<Backend>(Precision)> make_backend;
  int number = 0;               // among all units: the rank of `faults`
  std::vector<Fault> faults{};  // of kind wrong, of all units
};

// Screens all units at the same time, each in its own thread, for `seconds` and at least two rounds. Throws the error
// of the first unit that could not be screened.
std::vector<ScreenedUnit> screen(const std::vector<ScreenPlan>& plans, double seconds);

// What one digest of a round is of.
struct ScreenedValue {
  std::string network;
  Precision precision = Precision::fp32;
  std::string layer;
  std::string pass;  // forward or backward
  std::string text;  // "the forward pass of conv1 (lenet, bf16)"
};
// By index of the digest.
std::vector<ScreenedValue> screened_values();
// The training steps of a round, and the layers in which faults can be injected.
std::int64_t screened_steps();
std::vector<std::string> screened_layers();

// The digests that this version of Tutti computes on all processors of this kind; empty if there are none.
std::vector<std::uint64_t> shipped_digests(const std::string& kind);

enum class WrongReason {
  changed,         // the unit did not repeat its own results
  minority,        // unlike most units of its kind, or unlike those with the shipped digests
  unlike_shipped,  // alone of its kind, and unlike the shipped digests
  undecided,       // units of its kind differ, and neither a majority nor shipped digests decide
};
constexpr std::array<std::string_view, 4> enum_names(WrongReason) {
  return {"changed", "minority", "unlike shipped", "undecided"};
}
struct WrongUnit {
  std::size_t unit = 0;
  WrongReason reason = WrongReason::changed;
  std::size_t digest = 0;  // index of the first that is wrong, or differs
  std::size_t right = 0;   // for `minority`: the number of units that are right
  friend bool operator==(const WrongUnit&, const WrongUnit&) = default;
};
// Units that did not repeat their results are wrong and have no vote. Of the others of a kind, those with the shipped
// digests are right, or else more than half of them if these agree. `shipped` is by kind.
std::vector<WrongUnit> find_wrong(const std::vector<ScreenedUnit>& units,
                                  const std::map<std::string, std::vector<std::uint64_t>>& shipped);

}  // namespace tutti
