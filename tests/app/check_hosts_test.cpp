// trainer check on simulated hosts (tools/cluster/hosts) that share neither a program nor a folder.

#include "data/written_images.hpp"
#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

using tutti::testing_support::Bytes;
using tutti::testing_support::png_of;

class TwoHosts {
 public:
  TwoHosts() { EXPECT_EQ(run({"up", "2"}).status, 0); }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;
  ~TwoHosts() { run({"down"}); }

  // Even ranks are on the first. The script finds the program in $0.
  ChildResult run_ranks(int ranks, const std::string& script) {
    return run({"mpi", std::to_string(ranks), "sh", "-c", script, std::getenv("TUTTI_TRAINER")});
  }

 private:
  static ChildResult run(std::vector<std::string> words) {
    words.insert(words.begin(), std::getenv("TUTTI_HOSTS_SCRIPT"));
    return run_child(words, {{"TUTTI_HOSTS", "check"}, {"TUTTI_HOSTS_NETWORK", "10.79.8"}});
  }
};

TEST(CheckBetweenHosts, NamesAnotherProgramAndAFolderThatIsNotShared) {
  const ScratchFolder folder;
  const ScratchFolder out;
  const std::string other = folder.file("trainer");
  std::filesystem::copy_file(std::getenv("TUTTI_TRAINER"), other);
  std::ofstream(other, std::ios::app) << '.';
  TwoHosts hosts;
  const ChildResult result = hosts.run_ranks(
      4, fmt::format("export LD_LIBRARY_PATH=$(dirname $0) W='check --model mlp --threads 1 --batch-size 64 --data "
                     "synthetic:256x1x8x8:4 --out {0}'; [ $(hostname) = check1 ] && exec $0 $W; exec unshare --mount "
                     "sh -c 'mount -t tmpfs none {0} && exec {1} $W'",
                     out.path(), other));
  EXPECT_EQ(result.status, 1) << result.out << result.err;
  EXPECT_THAT(result.out,
              mentions("error: ranks 1, 3 have another program file than rank 0, ",
                       "warning: ranks 1, 3 on check2: ", "rank 0 writes to --out ", "\nwill fail: 1 error; "));
  EXPECT_EQ(out.entries(), 0U);
}

TEST(TrainingBetweenHosts, NoticesImagesThatDiffer) {
  const ScratchFolder one;
  const ScratchFolder other;
  for (const auto& [folder, brightness] : {std::pair{&one, 40}, std::pair{&other, 215}}) {
    for (const char* name : {"cat/1.png", "dog/1.png"}) {
      folder->write(name, png_of({1, 16, 16, Bytes(256, static_cast<std::uint8_t>(brightness))}));
    }
  }
  TwoHosts hosts;
  const ChildResult result = hosts.run_ranks(
      2, fmt::format("W='--model mlp --threads 1 --epochs 1 --data {0}'; [ $(hostname) = check1 ] && exec $0 $W; "
                     "exec unshare --mount sh -c \"mount --bind {1} {0} && exec $0 $W\"",
                     one.path(), other.path()));
  EXPECT_THAT(result, ends(65, "rank 1 has another content of 2 of the training images than rank 0, "));
}

}  // namespace
}  // namespace tutti::test
