#include "tutti/comm/launcher.hpp"

#include "tutti/comm/world.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

namespace tutti {
namespace {

// Each test starts without any launcher's variables.
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
  static constexpr std::array kVariables{"OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "PMIX_RANK",
                                         "PMI_RANK",
                                         "PMI_SIZE",
                                         "MPI_LOCALNRANKS",
                                         "SLURM_PROCID",
                                         "SLURM_STEP_ID",
                                         "SLURM_STEP_NUM_TASKS",
                                         "SLURM_NTASKS"};
};

TEST_F(Launcher, IsAbsentWithoutItsVariables) {
  EXPECT_FALSE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 0);
  EXPECT_FALSE(launched_size());
}

TEST_F(Launcher, IsSeenUnderOpenMpi) {
  set("OMPI_COMM_WORLD_SIZE", "4");
  set("OMPI_COMM_WORLD_RANK", "3");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  EXPECT_TRUE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 3);
  EXPECT_EQ(launched_size(), 4);
  EXPECT_EQ(launched_local_size(), 2);
  EXPECT_EQ(launcher_name(), "Open MPI's mpirun");
}

TEST_F(Launcher, IsSeenUnderMpich) {
  set("PMI_SIZE", "2");
  set("PMI_RANK", "1");
  set("MPI_LOCALNRANKS", "2");
  EXPECT_TRUE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 1);
  EXPECT_EQ(launched_size(), 2);
  EXPECT_EQ(launcher_name(), "MPICH's mpiexec");
}

TEST_F(Launcher, IsSeenUnderSlurmWithPmi2) {
  set("SLURM_STEP_NUM_TASKS", "6");
  set("SLURM_PROCID", "4");
  set("PMI_SIZE", "6");
  set("PMI_RANK", "4");
  EXPECT_TRUE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 4);
  EXPECT_EQ(launched_size(), 6);
  EXPECT_EQ(launcher_name(), "srun");
}

TEST_F(Launcher, IsSeenUnderSlurmWithPmix) {
  set("SLURM_PROCID", "5");
  set("PMIX_RANK", "5");
  set("SLURM_STEP_NUM_TASKS", "8");
  EXPECT_TRUE(started_by_launcher());
  EXPECT_FALSE(started_by_slurm_without_pmix());
  EXPECT_EQ(launcher_rank(), 5);
}

TEST_F(Launcher, IsSeenInAStepOfMultipleTasksEvenWithoutPmi) {
  set("SLURM_STEP_ID", "0");
  set("SLURM_STEP_NUM_TASKS", "8");
  set("SLURM_PROCID", "7");
  EXPECT_TRUE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 7);
  EXPECT_EQ(launched_size(), 8);
  EXPECT_TRUE(started_by_slurm_without_pmix());
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
  EXPECT_EQ(launched_size(), 8);
  EXPECT_EQ(launcher_name(), "Open MPI's mpirun");
}

// mpirun starts one daemon per host with srun, whose variables remain set; mpirun's own variables count.
TEST_F(Launcher, IsMpichsInsideASlurmJob) {
  set("SLURM_STEP_NUM_TASKS", "2");
  set("SLURM_PROCID", "1");
  set("PMI_SIZE", "1");
  set("PMI_RANK", "0");
  set("MPI_LOCALNRANKS", "1");
  EXPECT_EQ(launcher_rank(), 0);
  EXPECT_EQ(launched_size(), 1);
  EXPECT_EQ(launcher_name(), "MPICH's mpiexec");
  EXPECT_FALSE(started_by_slurm_without_pmix());
}

TEST_F(Launcher, IgnoresVariablesThatAreNotNumbers) {
  set("PMI_RANK", "none");
  EXPECT_FALSE(started_by_launcher());
  EXPECT_EQ(launcher_rank(), 0);
}

}  // namespace
}  // namespace tutti
