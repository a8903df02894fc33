#pragma once
// A checkpoint on the disk that a test damages repeatedly. Each time, a resume must refuse it with an error that names
// one of its files, or load exactly the state of its manifest.

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "storage/sample_state.hpp"
#include "storage/written_checkpoint.hpp"
#include "support/scratch_folder.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>

namespace tutti {

// The number of random changes of each kind, by default 500, or TUTTI_MUTANTS; and the stride of enumerated changes.
inline std::uint32_t mutants() {
  const char* number = std::getenv("TUTTI_MUTANTS");
  return number == nullptr ? 500 : static_cast<std::uint32_t>(std::stoul(number));
}
inline std::size_t stride() { return std::max<std::size_t>(1, 10'000 / mutants()); }

inline TrainState lenet_state() {
  TrainState state = sample_state();
  state.statistics.clear();
  state.parameters = {sample_array("conv1/bias", {20}, 0),   sample_array("conv1/weight", {20, 1, 5, 5}, 1),
                      sample_array("conv2/bias", {50}, 2),   sample_array("conv2/weight", {50, 20, 5, 5}, 3),
                      sample_array("dense1/bias", {500}, 4), sample_array("dense1/weight", {500, 800}, 5),
                      sample_array("dense2/bias", {10}, 6),  sample_array("dense2/weight", {10, 500}, 7)};
  state.optimizer = state.parameters;
  for (NamedArray& array : state.optimizer) array.name = "velocity/" + array.name;
  return state;
}

// The shares of a checkpoint, by the name of its shape.
inline std::vector<TrainState> shares_of_shape(const std::string& shape) {
  if (shape == "shards") return shares_of(sample_state(), 3);
  return {shape == "lenet" ? lenet_state() : sample_state()};
}

class DamagedCheckpoint {
 public:
  explicit DamagedCheckpoint(const std::vector<TrainState>& shares)
      : path_(folder_.file(checkpoint_file_name(shares.front().progress.step))), files_(checkpoint_files(shares)) {
    for (const auto& [name, bytes] : files_) restore(name);
    expected_ = checkpoint_file_bytes(load_checkpoint(path_).state);
  }

  const CheckpointFiles& files() const { return files_; }
  const std::string& path() const { return path_; }
  std::string path_of(const std::string& name) const { return folder_.file(name); }
  std::string manifest_name() const { return std::filesystem::path(manifest_path(path_)).filename(); }
  const std::vector<std::byte>& manifest() const { return files_.at(manifest_name()); }

  void put(const std::string& name, std::span<const std::byte> bytes) const { overwrite(path_of(name), bytes); }
  void restore(const std::string& name) const {
    std::filesystem::remove_all(path_of(name));
    put(name, files_.at(name));
  }
  void patch(const std::string& name, std::size_t at, std::span<const std::byte> bytes) const {
    std::fstream file(path_of(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) throw std::runtime_error("cannot patch " + path_of(name));
  }
  void restore(const std::string& name, std::size_t at, std::size_t bytes) const {
    patch(name, at, std::span(files_.at(name)).subspan(at, bytes));
  }

  // Loads the checkpoint in the folder, and returns whether that succeeded. A loaded state must be the saved one.
  bool loads(const std::string& change) {
    const Stopwatch watch;
    std::optional<TrainState> state;
    std::string refusal;
    try {
      state = read_checkpoint(path_).loaded.state;
    } catch (const Error& error) {
      refusal = error.what();
      const bool other_format = refusal.find("has format") != std::string::npos;
      const bool expected = error.source() == ErrorSource::checkpoint || error.source() == ErrorSource::io ||
                            (error.source() == ErrorSource::input && other_format);
      EXPECT_TRUE(expected && refusal.find(folder_.path()) != std::string::npos) << change << ": " << refusal;
    }
    if (watch.seconds() > slowest_) {
      slowest_ = watch.seconds();
      slowest_change_ = change;
    }
    ++cases_;
    (state ? loaded_ : refused_) += 1;
    if (state) {
      room_ = checkpoint_file_bytes(*state, std::move(room_));
      EXPECT_TRUE(room_ == expected_) << change << ": a wrong load";
    }
    return state.has_value();
  }

  void report(const char* what, const std::string& shape) const {
    std::printf("%s, %s: %lld cases, %lld refused, %lld harmless; slowest %.0f ms (%s)\n", what, shape.c_str(), cases_,
                refused_, loaded_, slowest_ * 1e3, slowest_change_.c_str());
  }
  long long harmless() const { return loaded_; }

 private:
  ScratchFolder folder_;
  std::string path_;
  CheckpointFiles files_;
  std::vector<std::byte> expected_;  // the saved state, as one file
  std::vector<std::byte> room_ =
      std::vector<std::byte>(std::size_t{16} << 20);  // so that only loading allocates memory
  long long cases_ = 0;
  long long refused_ = 0;
  long long loaded_ = 0;
  double slowest_ = 0;
  std::string slowest_change_;
};

// Draws numbers and bytes.
class Draw {
 public:
  Draw(std::uint32_t number, std::string_view purpose)
      : random_(4711, {.item = number, .purpose = random_purpose(purpose)}) {}

  std::size_t below(std::size_t bound) { return random_.below(static_cast<std::uint32_t>(bound)); }
  // Lengths with a logarithmic distribution.
  std::size_t length(std::size_t most) { return 1 + below(std::min(most, std::size_t{1} << below(13))); }
  std::vector<std::byte> bytes(std::size_t count) {
    const std::size_t kind = below(4);
    std::vector<std::byte> bytes(count, kind == 0 ? std::byte{0} : std::byte{0xFF});
    if (kind > 1) std::ranges::generate(bytes, [&] { return static_cast<std::byte>(below(256)); });
    return bytes;
  }
  template <class Range>
  auto& one_of(Range& range) {
    return *std::next(std::begin(range), static_cast<std::ptrdiff_t>(below(std::size(range))));
  }

 private:
  RandomSequence random_;
};

}  // namespace tutti
