#include "plan_choices.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "support/memory_backend.hpp"
#include "support/mpi_world.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

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

void write(const std::string& path, const std::string& text) { write_atomically(path, std::as_bytes(std::span(text))); }

class PlanChoices : public testing::Test {
 protected:
  World& world_ = test_world();
  Log log_{world_.rank(), world_.host(), true};
  ProcessorOptions config_;
};

TEST_F(PlanChoices, OfACheckpointTakePrecedenceOverThoseOfTheFile) {
  const ScratchFolder folder;
  config_.plan_cache = folder.file("plans");
  const std::string cached = "H200 from the file\n";
  write(config_.plan_cache, cached);
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
  build_with_shared_choices(world_, config_, backend, log_, [&] { backend.measure(world_.rank()); });
  EXPECT_EQ(backend.algorithm_cache(), world_.rank() == 0 ? "A100 measured by 0\n" : "H200 measured by 1\n");
}

TEST_F(PlanChoices, FailOnAllRanksWhereOneCannotBuild) {
  for (int failing = 0; failing < world_.size(); ++failing) {
    Measuring backend("H200");
    const Error error = thrown_by([&] {
      build_with_shared_choices(world_, config_, backend, log_, [&] {
        if (world_.rank() == failing) throw Error(ErrorSource::cuda, "no room");
        backend.measure(world_.rank());
      });
    });
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    EXPECT_THAT(error.what(), mentions("no room"));
  }
}

// A GPU whose choices are lines of convolutions, as cuDNN's.
class Gpu final : public testing_support::MemoryBackend {
 public:
  std::string description() const override { return "cuda: GPU X (4 multiprocessors), Lib 1.0"; }
  MemorySpace memory_space() const override { return MemorySpace::cuda; }
  std::string algorithm_cache() const override {
    std::string text;
    for (const auto& [convolution, engine] : choices_) text += convolution + " | " + engine + "\n";
    return text;
  }
  bool load_algorithm_cache(const std::string& lines) override {
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
      const std::size_t end = line.rfind(" | ");
      if (line.starts_with(kOwner) && end > kOwner.size()) choices_[line.substr(0, end)] = line.substr(end + 3);
    }
    return true;
  }
  void build(const std::string& convolution, const std::string& engine) {
    choices_.try_emplace(std::string(kOwner) + convolution, engine);
  }

 private:
  static constexpr std::string_view kOwner = "Lib 1.0 | GPU X | ";
  std::map<std::string, std::string> choices_;
};

// The same folder on all ranks, as home folders are.
class OwnCache : public PlanChoices {
 protected:
  OwnCache() {
    const std::string path = broadcast_text(world_, folder_.path(), 0);
    ::setenv("XDG_CACHE_HOME", path.c_str(), 1);
    cache_ = path + "/tutti";
    file_ = cache_ + "/plans-cuda-GPU-X-4-multiprocessors-Lib-1.0.txt";
  }
  ~OwnCache() override {
    world_.barrier();
    ::setenv("XDG_CACHE_HOME", "none", 1);
  }

  // Starts a run with this convolution, which chooses the engine if it must. Returns the choices, and on rank 0 what it
  // prints.
  std::pair<std::string, std::string> start(const std::string& convolution, const std::string& engine) {
    Gpu gpu;
    testing::internal::CaptureStderr();
    adopt_known_choices(world_, config_, "", gpu, log_);
    build_with_shared_choices(world_, config_, gpu, log_, [&] { gpu.build(convolution, engine); });
    const std::string printed = testing::internal::GetCapturedStderr();
    world_.barrier();
    return {gpu.algorithm_cache(), world_.rank() == 0 ? printed : ""};
  }
  void on_rank_0(const std::function<void()>& change) {
    if (world_.rank() == 0) change();
    world_.barrier();
  }

  ScratchFolder folder_;
  std::string cache_;
  std::string file_;
};

TEST_F(OwnCache, GivesTheNextStartTheChoicesOfTheFirst) {
  const auto [first, printed] = start("a", "1");
  EXPECT_EQ(first, "Lib 1.0 | GPU X | a | 1\n");
  EXPECT_EQ(printed, "");
  EXPECT_EQ(read_file_text(file_), first);
  EXPECT_EQ(fs::status(cache_).permissions(), fs::perms::owner_all);
  EXPECT_EQ(start("a", "2").first, first) << "known";
  start("b", "3");
  EXPECT_EQ(read_file_text(file_), first + "Lib 1.0 | GPU X | b | 3\n");
  EXPECT_EQ(start("c", "4 untimed").first, read_file_text(file_) + "Lib 1.0 | GPU X | c | 4 untimed\n");
}

TEST_F(OwnCache, IsNeitherReadNorWrittenWithoutASearchOrWhenItIsOff) {
  on_rank_0([&] {
    fs::create_directory(cache_);
    write(file_, "Lib 1.0 | GPU X | a | 1\n");
  });
  config_.gpu.search_plans = false;
  EXPECT_EQ(start("a", "2").first, "Lib 1.0 | GPU X | a | 2\n");
  config_.gpu.search_plans = true;
  for (const std::string off : {"off", ""}) {
    config_.plan_cache = off;
    EXPECT_EQ(start("c", "2").first, "Lib 1.0 | GPU X | c | 2\n");
    EXPECT_EQ(read_file_text(file_), "Lib 1.0 | GPU X | a | 1\n");
  }
}

TEST_F(OwnCache, ReplacesWhatIsNotInItsFormat) {
  on_rank_0([&] {
    fs::create_directory(cache_);
    const std::string binary("\0\xFF\n | \n", 7);
    write(file_, binary + "Lib 0.9 | GPU X | a | 7\nLib 1.0 | GPU X | b | 2\nLib 1.0 | GP");
  });
  start("a", "1");
  EXPECT_EQ(read_file_text(file_), "Lib 1.0 | GPU X | a | 1\nLib 1.0 | GPU X | b | 2\n");
}

TEST_F(OwnCache, WarnsOnceWhenItCannotBeWritten) {
  on_rank_0([&] { write(cache_, "a file where the folder should be"); });
  const auto [choices, printed] = start("a", "1");
  EXPECT_EQ(choices, "Lib 1.0 | GPU X | a | 1\n");
  if (world_.rank() == 0) {
    EXPECT_THAT(printed, mentions("the next start must time algorithms again", "--plan-cache off"));
    EXPECT_EQ(std::ranges::count(printed, '\n'), 1) << printed;
  }
}

TEST_F(OwnCache, FollowsNoLinkAndReadsNoHugeFile) {
  const std::string elsewhere = broadcast_text(world_, folder_.file("elsewhere"), 0);
  on_rank_0([&] {
    fs::create_directory(cache_);
    write(elsewhere, "Lib 1.0 | GPU X | a | 1\n");
    fs::create_symlink(elsewhere, file_);
  });
  const auto [choices, printed] = start("a", "2");
  EXPECT_EQ(choices, "Lib 1.0 | GPU X | a | 2\n");
  if (world_.rank() == 0) {
    EXPECT_THAT(printed, mentions("is not a plain file of yours"));
  }
  EXPECT_EQ(read_file_text(elsewhere), "Lib 1.0 | GPU X | a | 1\n");
  on_rank_0([&] {
    fs::remove(file_);
    write(file_, "Lib 1.0 | GPU X | a | 1\n" + std::string(std::size_t{5} << 20, ' '));
  });
  EXPECT_EQ(start("a", "2").first, "Lib 1.0 | GPU X | a | 2\n");
}

TEST_F(OwnCache, IsNotUsedWhereItsFolderIsNoAbsolutePath) {
  ::setenv("XDG_CACHE_HOME", "none", 1);
  EXPECT_EQ(start("a", "1").second, "");
  EXPECT_FALSE(fs::exists("none"));
  EXPECT_EQ(start("a", "2").first, "Lib 1.0 | GPU X | a | 2\n") << "measured again";
}

}  // namespace
}  // namespace tutti
