#include "comm/mpi/operation_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>
#include <string>

namespace tutti::mpi {
namespace {

// Records its name when it starts. The test decides when it is done.
class NamedOperation final : public Operation {
 public:
  NamedOperation(char name, std::string& started, const bool& done) : name_(name), started_(started), done_(done) {}
  void start() override { started_ += name_; }
  State advance() override { return done_ ? State::done : State::waiting; }

 private:
  char name_;
  std::string& started_;
  const bool& done_;
};

class OperationQueueTest : public testing::Test {
 protected:
  void push(const std::string& names, const OperationMemory& memory) {
    Operations operations;
    for (const char name : names) operations.push_back(std::make_unique<NamedOperation>(name, started_, done_));
    queue_.push(memory, std::move(operations));
  }

  std::array<std::byte, 100> block_{};
  const std::span<const std::byte> bytes_ = block_;
  std::string started_;
  bool done_ = false;
  CollectiveCounter collectives_;
  OperationQueue queue_{false, collectives_};
};

TEST_F(OperationQueueTest, StartsOperationsPushedTogetherAtOnceThoughTheyShareMemory) {
  push("abcdef", {bytes_, {}});
  EXPECT_EQ(started_, "abcd");
  done_ = true;
  queue_.finish();
  EXPECT_EQ(started_, "abcdef");
}

TEST_F(OperationQueueTest, DelaysOperationsWhoseMemoryAnEarlierPushUses) {
  push("a", {bytes_.first(10), bytes_.last(10)});
  push("b", {bytes_.subspan(20, 10), {}});
  push("c", {bytes_.subspan(40, 10), bytes_.subspan(85, 10)});
  push("d", {bytes_.subspan(60, 1), {}});
  EXPECT_EQ(started_, "ab");
  done_ = true;
  queue_.finish();
  EXPECT_EQ(started_, "abcd");
}

}  // namespace
}  // namespace tutti::mpi
