#include "tutti/base/error.hpp"
#include "tutti/comm/world.hpp"

#include "support/mpi_world.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <optional>

namespace tutti {
namespace {

std::optional<Error> error_agreed_on(const std::function<void()>& action) {
  try {
    run_or_throw_on_all(test_world(), action);
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

// The prefix of an error that occurred on one rank only.
std::string named(int rank, const std::string& message) {
  if (test_world().size() == 1) return message;
  return fmt::format("rank {} on host {}: {}", rank, test_world().host(), message);
}

TEST(RunOrThrowOnAll, ThrowsNothingWhenNoRankFails) {
  int runs = 0;
  EXPECT_FALSE(error_agreed_on([&] { ++runs; }).has_value());
  EXPECT_EQ(runs, 1);
}

TEST(RunOrThrowOnAll, PassesAnErrorOfAllRanksOnUnchanged) {
  const auto error = error_agreed_on([] { throw Error(ErrorSource::input, "no such data set: 'mnits'"); });
  ASSERT_TRUE(error.has_value());
  EXPECT_STREQ(error->what(), "no such data set: 'mnits'");
  EXPECT_EQ(error->source(), ErrorSource::input);
  EXPECT_EQ(error->scope(), ErrorScope::all_ranks);
  EXPECT_TRUE(std::string(error->where().file_name()).ends_with("run_or_throw_on_all_test.cpp"));
}

TEST(RunOrThrowOnAll, NamesTheOneRankThatFailed) {
  for (int failing = 0; failing < test_world().size(); ++failing) {
    const auto error = error_agreed_on([&] {
      if (test_world().rank() == failing) throw Error(ErrorSource::io, "cannot read 'a.h5'");
    });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->what(), named(failing, "cannot read 'a.h5'"));
    EXPECT_EQ(error->describe(), error->what());
    EXPECT_EQ(error->source(), ErrorSource::io);
    EXPECT_EQ(error->scope(), ErrorScope::all_ranks);
  }
}

TEST(RunOrThrowOnAll, TakesTheLowestRankWhenRanksFailDifferently) {
  const auto error =
      error_agreed_on([] { throw Error(ErrorSource::save, fmt::format("disk {} is full", test_world().rank())); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->what(), named(0, "disk 0 is full"));
  EXPECT_EQ(error->source(), ErrorSource::save);
}

TEST(RunOrThrowOnAll, NamesTheRankAndHostOfTheFailureOnEveryRank) {
  const int failing = test_world().size() - 1;
  const auto error = error_agreed_on([&] {
    if (test_world().rank() == failing) throw Error(ErrorSource::hdf5, "bad file");
  });
  ASSERT_TRUE(error.has_value());
  const std::string described = error->describe();
  EXPECT_TRUE(
      described.starts_with("HDF5: " + named(failing, "bad file") + " (tests/comm/run_or_throw_on_all_test.cpp:"))
      << described;
}

TEST(RunOrThrowOnAll, TurnsForeignExceptionsIntoInternalErrors) {
  const auto error = error_agreed_on([] { throw std::out_of_range("position 7 of 5"); });
  ASSERT_TRUE(error.has_value());
  EXPECT_STREQ(error->what(), "position 7 of 5");
  EXPECT_EQ(error->source(), ErrorSource::internal);

  const auto memory = error_agreed_on([] {
    if (test_world().rank() == 0) throw std::bad_alloc();
  });
  ASSERT_TRUE(memory.has_value());
  EXPECT_NE(std::string(memory->what()).find("not enough memory"), std::string::npos) << memory->what();

  EXPECT_TRUE(error_agreed_on([] { throw 7; }).has_value());
}

TEST(RunOrThrowOnAll, NamesTheRankOnceWhenNested) {
  const int failing = test_world().size() - 1;
  const auto error = error_agreed_on([&] {
    run_or_throw_on_all(test_world(), [&] {
      if (test_world().rank() == failing) throw Error(ErrorSource::hdf5, "bad file");
    });
  });
  ASSERT_TRUE(error.has_value());
  const std::string text = error->what();
  EXPECT_TRUE(text.starts_with(named(failing, "bad file"))) << text;
  EXPECT_EQ(text.find("on host"), text.rfind("on host")) << text;
}

TEST(RunOrThrowOnAll, LeavesTheWorldUsableAfterAFailure) {
  EXPECT_TRUE(error_agreed_on([] { throw Error(ErrorSource::io, "gone"); }).has_value());
  EXPECT_TRUE(test_world().all_true(true));
}

}  // namespace
}  // namespace tutti
