// The published files in the folder that TUTTI_DATA names, out of a network that ends at this machine.

#include "data/written_sets.hpp"
#include "support/child_process.hpp"
#include "support/loopback_server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace tutti::test {
namespace {

using ::testing::HasSubstr;
using ::tutti::testing::TemporaryFolder;

TEST(FetchedData, FashionMnistIsTakenAsPublishedAndFoundByItsName) {
  LoopbackServer server;
  const std::string published = std::string(std::getenv("TUTTI_DATA")) + "/fashion-mnist/";
  for (const char* name : {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
                           "t10k-labels-idx1-ubyte.gz"}) {
    server.serve(name, {.content = read_text(published + name), .cut_after = 3'000'000});
  }
  const TemporaryFolder folder;
  const std::string to = folder.text() + "/data";
  const ChildResult fetched = run_child({std::getenv("TUTTI_TRAINER"), "data", "fetch", "fashion-mnist", "--to", to,
                                         "--url", server.url(), "--progress", "always"},
                                        {{"no_proxy", "127.0.0.1"}});
  EXPECT_EQ(fetched.status, 0) << fetched.err;
  EXPECT_EQ(fetched.out, to +
                             "/fashion-mnist: 60000 training and 10000 test images of 1x28x28, 10 classes; train on "
                             "it: " +
                             std::getenv("TUTTI_TRAINER") + " --data " + to + "/fashion-mnist\n");
  EXPECT_THAT(fetched.err, HasSubstr("train-labels-idx1-ubyte.gz from " + server.url() + ", SHA-256 as published"));
  EXPECT_THAT(fetched.err, HasSubstr("going on from byte 3000000"));
  EXPECT_THAT(fetched.err, HasSubstr(" of 25.2 MiB, "));
  const ChildResult found =
      run_child({std::getenv("TUTTI_TRAINER"), "data", "info", "fashion-mnist"}, {{"TUTTI_DATA", to}});
  EXPECT_EQ(found.status, 0) << found.err;
}

}  // namespace
}  // namespace tutti::test
