// Mutants of a data file, each opened in its own process: it must be refused with an Error, or do no harm. HDF5 itself
// crashes on inconsistent files, so only mutants with a forged seal may reach it.

#include "tutti/base/random.hpp"
#include "tutti/data/data_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/seal.hpp"

#include "data/written_sets.hpp"
#include "support/lone_child.hpp"
#include "support/overwrite.hpp"
#include "support/scratch_folder.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

namespace tutti {
namespace {

using testing_support::Contents;
using testing_support::contents_of;
using testing_support::open_named;

using FileBytes = std::vector<std::byte>;

std::uint32_t mutants() {
  const char* wanted = std::getenv("TUTTI_MUTANTS");
  return wanted == nullptr ? 300 : static_cast<std::uint32_t>(std::stoul(wanted));
}

class Mutation {
 public:
  explicit Mutation(std::uint32_t number)
      : kind_(number % 5), random_(4711, {.item = number, .purpose = random_purpose("data file mutants")}) {}

  // Each kind of damage in turn: a byte, a field of 4 or 8 bytes, a run of bytes, or truncation.
  void apply(FileBytes& bytes) {
    const std::size_t at = below(bytes.size());
    const std::span<std::byte> rest(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end());
    switch (kind_) {
      case 0:
        rest.front() ^= static_cast<std::byte>(below(4) == 0 ? 0xFF : 1U << below(8));
        return;
      case 1:
      case 2:
        return put_field(rest.first(std::min<std::size_t>(4 * kind_, rest.size())));
      case 3:
        std::ranges::generate(rest.first(1 + below(std::min<std::size_t>(64, rest.size()))),
                              [&] { return static_cast<std::byte>(below(256)); });
        return;
      default:
        bytes.resize(at);
    }
  }

 private:
  std::size_t below(std::size_t bound) { return random_.below(static_cast<std::uint32_t>(bound)); }

  void put_field(std::span<std::byte> field) {
    std::uint64_t old = 0;
    std::memcpy(&old, field.data(), field.size());
    const std::array<std::uint64_t, 9> values{0,       1,       ~std::uint64_t{0},
                                              old + 1, old - 1, std::uint64_t{1} << (8 * field.size() - 1),
                                              old * 2, 1 << 20, old ^ random_.next()};
    std::memcpy(field.data(), &values[below(values.size())], field.size());
  }

  std::uint32_t kind_;
  RandomSequence random_;
};

bool same(const Contents& a, const Contents& b) { return a.images == b.images && a.labels == b.labels; }

class DataFileMutants : public ::testing::Test {
 protected:
  DataFileMutants() {
    write_data_file(open_data({.train = "synthetic:40x1x6x5:4", .validation_ratio = 0.25}).pair, path_);
    good_ = read_file_bytes(path_);
    const OwnedData data = open_named(path_);
    train_ = contents_of(*data.pair.train);
    test_ = contents_of(*data.pair.test);
  }

  // As training reads it: all at once, or in pieces without comparing digests.
  int outcome(bool resident) const {
    return outcome_in_child([&] {
      const OwnedData data = open_data({.train = path_, .most_resident_bytes = resident ? 0U : 1U});
      const Contents train = contents_of(*data.pair.train);
      const Contents test = contents_of(*data.pair.test);
      return resident ? same(train, train_) && same(test, test_)
                      : train.labels == train_.labels && test.labels == test_.labels;
    });
  }

  FileBytes good_without_seal() const {
    std::uint64_t length = 0;
    std::memcpy(&length, &good_[good_.size() - 24], sizeof length);
    return {good_.begin(), good_.begin() + static_cast<std::ptrdiff_t>(length)};
  }
  void write_sealed(FileBytes bytes) const {
    overwrite(path_, bytes);
    std::ranges::copy(seal_for(path_, {}), std::back_inserter(bytes));
    overwrite(path_, bytes);
  }

  void report(const char* what, const std::map<int, int>& outcomes) const {
    for (const auto& [outcome, count] : outcomes) {
      std::printf("%s: %s: %d\n", what, name_of_outcome(outcome).c_str(), count);
    }
  }

  ScratchFolder folder_;
  std::string path_ = folder_.file("set.h5");
  FileBytes good_;
  Contents train_;
  Contents test_;
};

TEST_F(DataFileMutants, AreRefusedOrHarmless) {
  std::map<int, int> outcomes;
  for (std::uint32_t number = 0; number < mutants(); ++number) {
    FileBytes bytes = good_;
    Mutation(number).apply(bytes);
    overwrite(path_, bytes);
    const int found = outcome(number / 5 % 2 == 0);
    ++outcomes[found];
    EXPECT_TRUE(found == refused || found == read_right) << "mutant " << number << ": " << name_of_outcome(found);
  }
  report("mutants", outcomes);
  EXPECT_GT(outcomes[refused], 0);
}

// Malicious files: HDF5 may fail on them in any way, but other images or labels must never be read.
TEST_F(DataFileMutants, WithAForgedSealAreNeverReadAsSomethingElse) {
  std::map<int, int> outcomes;
  for (std::uint32_t number = 0; number < mutants() / 5; ++number) {
    FileBytes bytes = good_without_seal();
    Mutation(number).apply(bytes);
    write_sealed(bytes);
    ++outcomes[outcome(/*resident=*/true)];
  }
  report("mutants with a forged seal", outcomes);
  EXPECT_EQ(outcomes[read_wrong] + outcomes[other_exception], 0);
  EXPECT_GT(outcomes[refused], 0);
}

TEST_F(DataFileMutants, WithSizesLargerThanTheFileAreRefused) {
  const std::array<std::uint64_t, 4> extents{30, 1, 6, 5};
  const std::uint64_t more = std::uint64_t{1} << 40;
  FileBytes bytes = good_without_seal();
  const auto place = std::ranges::search(bytes, std::as_bytes(std::span(extents)));
  ASSERT_FALSE(place.empty());
  std::ranges::copy(std::as_bytes(std::span(&more, 1)), place.begin());
  write_sealed(bytes);
  EXPECT_EQ(name_of_outcome(outcome(/*resident=*/true)), "refused");
  EXPECT_EQ(name_of_outcome(outcome(/*resident=*/false)), "refused");
}

}  // namespace
}  // namespace tutti
