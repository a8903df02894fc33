#include "tutti/comm/world.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

namespace tutti {
namespace {

// Each test starts as a process that nobody launched.
class Launcher : public testing::Test {
 protected:
  Launcher() {
    for (const char* name : kVariables) ::unsetenv(name);
  }
  ~Launcher() override {
    for (const char* name : kVariables) ::unsetenv(name);
  }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }

 private:
  static constexpr std::array kVariables{
      "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK",   "PMI_RANK", "PMI_SIZE", "SLURM_PROCID",
      "SLURM_STEP_ID",        "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};
};

TEST_F(Launcher, IsAbsentWithoutItsVariables) {
  EXPECT_FALSE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 0);
}

TEST_F(Launcher, IsSeenUnderOpenMpi) {
  set("OMPI_COMM_WORLD_SIZE", "4");
  set("OMPI_COMM_WORLD_RANK", "3");
  EXPECT_TRUE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 3);
}

TEST_F(Launcher, IsSeenUnderMpich) {
  set("PMI_SIZE", "2");
  set("PMI_RANK", "1");
  EXPECT_TRUE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 1);
}

TEST_F(Launcher, IsSeenUnderSlurmWithPmix) {
  set("SLURM_PROCID", "5");
  set("PMIX_RANK", "5");
  EXPECT_TRUE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 5);
}

TEST_F(Launcher, IsSeenInAStepOfSeveralTasksEvenWithoutPmi) {
  set("SLURM_STEP_ID", "0");
  set("SLURM_STEP_NUM_TASKS", "8");
  set("SLURM_PROCID", "7");
  EXPECT_TRUE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 7);
}

TEST_F(Launcher, IsAbsentInABatchScript) {
  set("SLURM_NTASKS", "8");
  set("SLURM_PROCID", "0");
  EXPECT_FALSE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 0);
}

TEST_F(Launcher, IsAbsentInAnInteractiveShellOfSlurm) {
  set("SLURM_STEP_ID", "4294967290");
  set("SLURM_STEP_NUM_TASKS", "1");
  set("SLURM_PROCID", "0");
  EXPECT_FALSE(started_by_launcher());
}

TEST_F(Launcher, IsTheInnermostOne) {
  set("SLURM_STEP_NUM_TASKS", "2");
  set("SLURM_PROCID", "1");
  set("OMPI_COMM_WORLD_SIZE", "8");
  set("OMPI_COMM_WORLD_RANK", "6");
  EXPECT_EQ(launcher_rank(), 6);
}

TEST_F(Launcher, IgnoresWhatIsNoNumber) {
  set("PMI_RANK", "none");
  EXPECT_FALSE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 0);
}

}  // namespace
}  // namespace tutti
