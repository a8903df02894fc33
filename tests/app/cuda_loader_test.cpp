#include "cuda_loader.hpp"

#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(CudaLoader, LooksBesideTuttisOwnLibrary) {
  const fs::path path = cuda_library_path();
  EXPECT_EQ(path.filename(), "libtutti_cuda.so");
  EXPECT_TRUE(fs::exists(path.parent_path() / "libtutti.so")) << path;
}

TEST(CudaLoader, NamesTheMissingLibraryTheReasonAndTheRemedy) {
  const Error error = thrown_by([] { load_cuda_libraries("/nowhere/libtutti_cuda.so"); });
  EXPECT_EQ(error.source(), ErrorSource::usage);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("cannot open libtutti_cuda.so"),
                    HasSubstr("/nowhere/libtutti_cuda.so: cannot open shared object file"), HasSubstr("--device cpu")));
}

TEST(CudaLoader, RefusesALibraryThatOffersSomethingElse) {
  const std::string other = (fs::path(cuda_library_path()).parent_path() / "libtutti.so").string();
  const Error error = thrown_by([&] { load_cuda_libraries(other); });
  EXPECT_EQ(error.source(), ErrorSource::usage);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(other), HasSubstr("tutti_cuda_library")));
}

TEST(CudaLoader, RefusesALibraryOfAnotherBuild) {
  const Error error = thrown_by([] { load_cuda_libraries(TUTTI_OUTDATED_LIBRARY); });
  EXPECT_EQ(error.source(), ErrorSource::usage);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(fmt::format("its interface version is {}, this program's {}",
                                                        kCudaInterfaceVersion - 1, kCudaInterfaceVersion)),
                                  HasSubstr("together")));
}

}  // namespace
}  // namespace tutti
