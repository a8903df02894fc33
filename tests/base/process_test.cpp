#include "tutti/base/process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace tutti {
namespace {

TEST(WriteAll, WaitsForTheReaderOfAPipeThatDoesNotBlock) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC), 0);
  const std::vector<std::byte> sent(std::size_t{1} << 20, std::byte{7});  // more than a pipe holds
  std::size_t received = 0;
  std::thread reader([&] {
    std::vector<std::byte> piece(4096);
    while (received < sent.size()) {
      const ssize_t got = ::read(ends[0], piece.data(), piece.size());
      if (got > 0) received += static_cast<std::size_t>(got);
    }
  });
  EXPECT_TRUE(write_all(ends[1], sent).empty());
  reader.join();
  EXPECT_EQ(received, sent.size());
  for (const int end : ends) ::close(end);
}

}  // namespace
}  // namespace tutti
