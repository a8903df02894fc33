#include "tutti/base/error.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "processors.hpp"
#include "support/memory_backend.hpp"
#include "support/mpi_world.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>

namespace tutti {
namespace {

// A backend that measures, and reuses the choices of its own kind.
class Measuring final : public testing_support::MemoryBackend {
 public:
  explicit Measuring(std::string kind) : kind_(std::move(kind)) {}
  std::string description() const override { return kind_; }
  MemorySpace memory_space() const override { return MemorySpace::cuda; }
  std::string algorithm_cache() const override { return choices_; }
  bool load_algorithm_cache(const std::string& lines) override {
    if (!lines.starts_with(kind_)) return lines.empty();
    choices_ = lines;
    return true;
  }
  void measure(int by) {
    if (choices_.empty()) choices_ = fmt::format("{} measured by {}\n", kind_, by);
  }

 private:
  std::string kind_;
  std::string choices_;
};

class PlanChoices : public testing::Test {
 protected:
  World& world_ = test_world();
  Log log_{world_.rank(), world_.host(), true};
  RunConfig config_;
};

TEST_F(PlanChoices, OfACheckpointTakePrecedenceOverThoseOfTheFile) {
  const ScratchFolder folder;
  config_.plan_cache = folder.file("plans");
  const std::string cached = "H200 from the file\n";
  write_atomically(config_.plan_cache, std::as_bytes(std::span(cached)));
  const std::string same = "H200 from the checkpoint\n";
  const std::string other = "A100 from the checkpoint\n";
  const std::pair<std::string, std::string> cases[] = {{"", cached}, {other, cached}, {same, same}};
  for (const auto& [checkpoint, expected] : cases) {
    Measuring backend("H200");
    adopt_known_choices(world_, config_, checkpoint, backend, log_);
    EXPECT_EQ(backend.algorithm_cache(), expected);
  }
}

TEST_F(PlanChoices, AreMadeByTheFirstRankOfEachKind) {
  Measuring backend(world_.rank() == 0 ? "A100" : "H200");
  build_with_shared_choices(world_, config_, backend, [&] { backend.measure(world_.rank()); });
  EXPECT_EQ(backend.algorithm_cache(), world_.rank() == 0 ? "A100 measured by 0\n" : "H200 measured by 1\n");
}

TEST_F(PlanChoices, FailOnAllRanksWhereOneCannotBuild) {
  for (int failing = 0; failing < world_.size(); ++failing) {
    Measuring backend("H200");
    const Error error = thrown_by([&] {
      build_with_shared_choices(world_, config_, backend, [&] {
        if (world_.rank() == failing) throw Error(ErrorSource::cuda, "no room");
        backend.measure(world_.rank());
      });
    });
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    EXPECT_NE(std::string(error.what()).find("no room"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tutti
