#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Error, OfTheUserNamesNoSourceLine) {
  EXPECT_EQ(Error(ErrorSource::input, "no such file").describe(), "no such file");
  EXPECT_EQ(Error(ErrorSource::input, "x").exit_status(), ExitStatus::bad_input);
  EXPECT_EQ(Error(ErrorSource::usage, "x").exit_status(), ExitStatus::usage);
  EXPECT_EQ(Error(ErrorSource::hang, "x").describe(), "x");
  EXPECT_EQ(Error(ErrorSource::hang, "x").exit_status(), ExitStatus::hang);
}

TEST(Error, OfALibraryNamesTheLibraryAndThePlace) {
  const std::string text = Error(ErrorSource::mpi, "bad communicator").describe();
  EXPECT_TRUE(text.starts_with("MPI: bad communicator (tests/base/error_test.cpp:")) << text;
  EXPECT_EQ(Error(ErrorSource::mpi, "x").exit_status(), ExitStatus::internal);
}

TEST(Error, KeepsItsPlaceWhenMarkedAsRaisedByAllRanks) {
  const Error error(ErrorSource::io, "cannot read");
  const Error marked = error.on_all_ranks();
  EXPECT_EQ(marked.scope(), ErrorScope::all_ranks);
  EXPECT_EQ(marked.where().line(), error.where().line());
  EXPECT_EQ(error.scope(), ErrorScope::this_rank);
}

}  // namespace
}  // namespace tutti
