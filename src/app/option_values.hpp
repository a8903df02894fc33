#pragma once
// What the values of options are once they are read: enumerations, and values that have a form of their own as text.

#include "tutti/backend/precision.hpp"
#include "tutti/base/words.hpp"
#include "tutti/train/trainer.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

enum class Device { automatic, cpu, cuda };
constexpr std::array<std::string_view, 3> words_of(Device) { return {"auto", "cpu", "cuda"}; }

enum class Comm { automatic, solo, mpi, nccl };
constexpr std::array<std::string_view, 4> words_of(Comm) { return {"auto", "solo", "mpi", "nccl"}; }

enum class ShowProgress { automatic, always, never };
constexpr std::array<std::string_view, 3> words_of(ShowProgress) { return {"auto", "always", "never"}; }

enum class OnDivergence { stop };
constexpr std::array<std::string_view, 1> words_of(OnDivergence) { return {"stop"}; }

// A value and the text that it was read from: files and records repeat the text, the run uses the value. `parse` throws
// a usage error that names the option, and so do these constructors.
template <auto parse>
class Written {
 public:
  using Value = std::decay_t<decltype(parse(std::string()))>;

  Written() : Written(std::string()) {}
  Written(std::string text) : text_(std::move(text)), value_(parse(text_)) {}
  Written(const char* text) : Written(std::string(text)) {}

  const std::string& text() const { return text_; }
  const Value& operator*() const { return value_; }
  const Value* operator->() const { return &value_; }

 private:
  std::string text_;
  Value value_;
};

// "--checkpoint-every": a number of steps, epochs or seconds, or "end" for none of them. Empty means each epoch, and
// 15 minutes within a longer one.
struct CheckpointInterval {
  std::int64_t steps = 0;
  std::int64_t epochs = 0;
  double seconds = 0;  // since the last checkpoint
};
CheckpointInterval parse_checkpoint_every(const std::string& text);
// The same for people: "every 500 steps and at the end".
std::string checkpoint_every_text(const CheckpointInterval& interval);

// "--time-limit" in seconds: 3600, 90s, 90m, 1h30m, HH:MM:SS or D-HH:MM:SS; empty means none, 0.
double parse_time_limit(const std::string& text);

// "--part-map": even, auto, or a list by rank: "3,3,2".
PartMapOptions parse_part_map(const std::string& text);
inline constexpr int kMostParts = 65536;

// "1,2,4" within 1 .. all, ascending, as the value of `option`; empty means 1, 2, 4 .. and all. Throws a usage error.
std::vector<int> parse_counts(std::string_view option, const std::string& text, int all);

}  // namespace tutti
