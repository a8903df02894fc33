#include "preflight/agreement.hpp"

#include "preflight/memory.hpp"
#include "support/mpi_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

// One host simulates other hosts with other data and libraries.
TEST(Agreement, NamesTheRanksThatDifferAndTheirValues) {
  const int rank = test_world().rank();
  const Findings findings =
      compare_across_ranks(test_world(), {{"training data", rank == 2 ? "0b" : "0a", "give all ranks the same --data"},
                                          {"seed", "7", "give all ranks the same"},
                                          {"HDF5", rank == 0 ? "1.10" : "1.12", "load the same modules"}});
  ASSERT_EQ(findings.all().size(), 2U);
  EXPECT_EQ(findings.all()[0].text,
            "rank 2 has another training data than rank 0, 0b instead of 0a: give all ranks the same --data");
  EXPECT_EQ(findings.all()[1].text,
            "ranks 1-2 have another HDF5 than rank 0, 1.12 instead of 1.10: load the same modules");
  EXPECT_EQ(findings.count(Severity::error), 2U);
}

TEST(Agreement, FindsNothingWhereAllRanksRunTheSameProgram) {
  EXPECT_THAT(compare_programs(test_world()).all(), testing::IsEmpty());
  EXPECT_THAT(compare_across_ranks(test_world(), agreed_versions("Open MPI 4.1.4")).all(), testing::IsEmpty());
}

TEST(Agreement, WarnsOfCheckpointsWhoseLayersOneDnnComputed) {
  const auto backend = make_cpu_backend();
  const auto found = [&](const std::string& processor) {
    LoadedCheckpoint resumed{.state = {}, .path = "a.h5"};
    resumed.state.versions = "tutti 1.0; " + processor + "; Open MPI 4.1.4";
    return check_processors(test_world(), {}, *backend, resumed).all();
  };
  EXPECT_THAT(found("cpu: AVX-512"), testing::IsEmpty());
  const auto findings = found("cpu: AVX2, oneDNN 2.6.3, OpenMP");
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::warning);
}

// Slurm's tasks may be in different control groups.
TEST(MemoryPools, AddUpTheDemandsOfTheRanksThatShareThem) {
  const int rank = test_world().rank();
  std::vector<MemoryPool> shared{{"host", 1000}, {rank < 2 ? "0:1" : "0:2", 100 + rank}};
  add_demands(test_world(), rank * rank + 1, shared);
  EXPECT_EQ(shared[0].ranks, 3);
  EXPECT_EQ(shared[0].wanted, 1 + 2 + 5);
  EXPECT_EQ(shared[0].left, 1000);
  EXPECT_EQ(shared[1].ranks, rank < 2 ? 2 : 1);
  EXPECT_EQ(shared[1].wanted, rank < 2 ? 1 + 2 : 5);
  EXPECT_EQ(shared[1].left, 100 + rank);
}

TEST(Findings, AreGatheredWithTheirRanks) {
  Findings mine;
  if (test_world().rank() > 0) mine.warn("slow: fix it");
  if (test_world().rank() == 1) mine.fail(ErrorSource::save, "full: empty it");
  const Findings all = gather(test_world(), mine);
  ASSERT_EQ(all.all().size(), 2U);
  EXPECT_EQ(all.all()[0].ranks, std::vector{1});
  EXPECT_EQ(all.all()[0].source, ErrorSource::save);
  EXPECT_EQ(all.all()[1].ranks, (std::vector{1, 2}));
}

}  // namespace
}  // namespace tutti
