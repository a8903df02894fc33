#include "tutti/base/error.hpp"
#include "tutti/comm/world.hpp"

#include "support/mpi_world.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <new>

namespace tutti {
namespace {

Error error_agreed_on(const std::function<void()>& action) {
  return thrown_by([&] { run_or_throw_on_all(test_world(), action); });
}

// The prefix of an error that occurred on one rank only.
std::string named(int rank, const std::string& message) {
  if (test_world().size() == 1) return message;
  return fmt::format("rank {} on host {}: {}", rank, test_world().host(), message);
}

TEST(RunOrThrowOnAll, ThrowsNothingWhenNoRankFails) {
  int runs = 0;
  run_or_throw_on_all(test_world(), [&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

TEST(RunOrThrowOnAll, PassesAnErrorOfAllRanksOnUnchanged) {
  const Error error = error_agreed_on([] { throw Error(ErrorSource::input, "no such data set: 'mnits'"); });
  EXPECT_STREQ(error.what(), "no such data set: 'mnits'");
  EXPECT_EQ(error.source(), ErrorSource::input);
  EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
  EXPECT_TRUE(std::string(error.where().file_name()).ends_with("run_or_throw_on_all_test.cpp"));
}

TEST(RunOrThrowOnAll, NamesTheOneRankThatFailed) {
  for (int failing = 0; failing < test_world().size(); ++failing) {
    const Error error = error_agreed_on([&] {
      if (test_world().rank() == failing) throw Error(ErrorSource::io, "cannot read 'a.h5'");
    });
    EXPECT_EQ(error.what(), named(failing, "cannot read 'a.h5'"));
    EXPECT_EQ(error.describe(), error.what());
    EXPECT_EQ(error.source(), ErrorSource::io);
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
  }
}

TEST(RunOrThrowOnAll, TakesTheLowestRankWhenRanksFailDifferently) {
  const Error error =
      error_agreed_on([] { throw Error(ErrorSource::save, fmt::format("disk {} is full", test_world().rank())); });
  EXPECT_EQ(error.what(), named(0, "disk 0 is full"));
  EXPECT_EQ(error.source(), ErrorSource::save);
}

TEST(RunOrThrowOnAll, NamesTheRankAndHostOfTheFailureOnEveryRank) {
  const int failing = test_world().size() - 1;
  const Error error = error_agreed_on([&] {
    if (test_world().rank() == failing) throw Error(ErrorSource::hdf5, "bad file");
  });
  const std::string described = error.describe();
  EXPECT_TRUE(
      described.starts_with("HDF5: " + named(failing, "bad file") + " (tests/comm/run_or_throw_on_all_test.cpp:"))
      << described;
}

TEST(RunOrThrowOnAll, TurnsForeignExceptionsIntoInternalErrors) {
  const Error error = error_agreed_on([] { throw std::out_of_range("position 7 of 5"); });
  EXPECT_STREQ(error.what(), "position 7 of 5");
  EXPECT_EQ(error.source(), ErrorSource::internal);

  const Error memory = error_agreed_on([] {
    if (test_world().rank() == 0) throw std::bad_alloc();
  });
  EXPECT_NE(std::string(memory.what()).find("not enough memory"), std::string::npos) << memory.what();

  EXPECT_EQ(error_agreed_on([] { throw 7; }).scope(), ErrorScope::all_ranks);
}

TEST(RunOrThrowOnAll, NamesTheRankOnceWhenNested) {
  const int failing = test_world().size() - 1;
  const Error error = error_agreed_on([&] {
    run_or_throw_on_all(test_world(), [&] {
      if (test_world().rank() == failing) throw Error(ErrorSource::hdf5, "bad file");
    });
  });
  const std::string text = error.what();
  EXPECT_TRUE(text.starts_with(named(failing, "bad file"))) << text;
  EXPECT_EQ(text.find("on host"), text.rfind("on host")) << text;
}

TEST(RunOrThrowOnAll, LeavesTheWorldUsableAfterAFailure) {
  EXPECT_STREQ(error_agreed_on([] { throw Error(ErrorSource::io, "gone"); }).what(), "gone");
  EXPECT_TRUE(test_world().all_true(true));
}

}  // namespace
}  // namespace tutti
