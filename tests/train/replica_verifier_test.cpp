#include "train/replica_verifier.hpp"

#include "support/mpi_world.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tutti {
namespace {

// The same tensors on every rank, laid out as those of a network.
class ReplicaVerifierTest : public ::testing::Test {
 protected:
  ReplicaVerifierTest() {
    backend_->enter_compute_thread(1);
    stream_ = backend_->make_stream();
    std::vector<ReplicatedTensor> tensors;
    for (const std::int64_t elements : {1, 10, 64, 5003}) {
      memory_.push_back(backend_->allocate(static_cast<std::size_t>(elements) * sizeof(float)));
      tensors.push_back(
          {"parameters/" + std::to_string(elements), memory_.back().view(Shape{elements}, ElementType::f32)});
      std::uint32_t bits = 1;
      for (float& value : host_f32(tensors.back().values)) value = std::bit_cast<float>(bits *= 0x9E3779B9u);
    }
    rank_.emplace(*backend_, *communicator_, rank_status_, *stream_);
    verifier_.emplace(*rank_, tensors, std::vector<std::string>{});
    tensors_ = std::move(tensors);
  }

  int rank() const { return test_world().rank(); }
  int size() const { return test_world().size(); }
  void flip(std::size_t tensor, std::int64_t element, int bit) {
    auto* const word = static_cast<std::uint32_t*>(tensors_[tensor].values.data) + element;
    *word ^= 1u << bit;
  }
  // Changes this rank only.
  std::optional<DivergenceReport> compare_with_flip(int of, std::size_t tensor, std::int64_t element, int bit) {
    if (rank() == of) flip(tensor, element, bit);
    auto found = verifier_->compare();
    if (rank() == of) flip(tensor, element, bit);
    return found;
  }

  std::unique_ptr<Backend> backend_ = make_cpu_backend();
  std::unique_ptr<Communicator> communicator_ = make_mpi_communicator(test_world(), {});
  RankStatus rank_status_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> memory_;
  std::vector<ReplicatedTensor> tensors_;
  std::optional<RankContext> rank_;
  std::optional<ReplicaVerifier> verifier_;
};

TEST_F(ReplicaVerifierTest, FindsNothingWhereAllAreEqual) {
  for (int i = 0; i < 3; ++i) {
    verifier_->record();
    EXPECT_FALSE(verifier_->compare()) << i;
  }
}

TEST_F(ReplicaVerifierTest, NamesTheTensorAndTheRankOfAnyOneFlippedBit) {
  for (int of = 0; of < size(); ++of) {
    for (const std::size_t tensor : {0U, 1U, 2U, 3U}) {
      const std::int64_t last = tensors_[tensor].values.elements() - 1;
      for (const int bit : {0, 17, 31}) {
        const auto found = compare_with_flip(of, tensor, bit == 17 ? 0 : last, bit);
        ASSERT_TRUE(found) << of;
        EXPECT_EQ(found->tensors, std::vector{tensors_[tensor].name});
        EXPECT_EQ(found->text.ends_with("and no value has a majority"), size() == 2) << found->text;
        EXPECT_EQ(found->ranks, size() == 2 ? (std::vector{0, 1}) : std::vector{of});
      }
    }
  }
  EXPECT_FALSE(verifier_->compare());
}

TEST_F(ReplicaVerifierTest, DescribesWhichRanksDifferInWhichTensor) {
  if (rank() == size() - 1) flip(1, 3, 7);
  if (rank() == size() - 1) flip(3, 1000, 30);
  const std::string text = verifier_->compare().value().text;
  EXPECT_EQ(text, size() == 2 ? "rank 0 and rank 1 differ in parameters/10, parameters/5003, and no value "
                                "has a majority"
                              : "rank " + std::to_string(size() - 1) +
                                    " differs from all others in parameters/10, parameters/5003");
  ReplicaVerifier named(*rank_, tensors_, {"a", "b", "c", "d"});
  const std::string named_text = named.compare().value().text;
  const std::string whom[] = {"rank 0 on a and rank 1 on b differ", "rank 2 on c differs", "rank 3 on d differs"};
  EXPECT_TRUE(named_text.starts_with(whom[size() - 2])) << named_text;
}

TEST_F(ReplicaVerifierTest, NamesBothSidesOfATieAndOtherwiseTheMinority) {
  if (rank() % 2 == 1) flip(2, 5, 3);
  const DivergenceReport found = verifier_->compare().value();
  EXPECT_EQ(found.ranks, size() % 2 == 1 ? std::vector{1} : (std::vector{0, 1}));
}

TEST_F(ReplicaVerifierTest, FindsARecordedDifferenceOfTensorsThatAreEqualAgain) {
  verifier_->record();
  if (rank() == 0) flip(3, 77, 12);
  verifier_->record();
  if (rank() == 0) flip(3, 77, 12);
  const auto found = verifier_->compare();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tensors, std::vector{tensors_[3].name});
  EXPECT_FALSE(verifier_->compare());
}

// All ranks have recorded the same values, but in another order.
TEST_F(ReplicaVerifierTest, FindsRecordsInAnotherOrder) {
  for (const bool first : {true, false}) {
    if ((rank() == 0) == first) flip(3, 77, 12);
    verifier_->record();
    if ((rank() == 0) == first) flip(3, 77, 12);
  }
  EXPECT_TRUE(verifier_->compare());
}

}  // namespace
}  // namespace tutti
