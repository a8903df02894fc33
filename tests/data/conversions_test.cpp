// Converts every kind of source to a data file: training on the file equals training on the source, and the file's
// bytes depend only on the source.

#include "tutti/base/error.hpp"
#include "tutti/data/data_file.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "data/written_images.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace tutti {
namespace {

using testing_support::Bytes;
using testing_support::cifar_file;
using testing_support::Contents;
using testing_support::contents_of;
using testing_support::gradient;
using testing_support::gzipped;
using testing_support::idx_file;
using testing_support::idx_labels;
using testing_support::png_of;

class Conversions : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name); }
  static OwnedData open(const std::string& train, double validation_ratio = 0) {
    return open_data({.train = train, .validation_ratio = validation_ratio, .seed = 3});
  }
  void write_text(const std::string& name, const std::string& text) const {
    folder_.write(name, {text.begin(), text.end()});
  }
  // Images of different sizes in two classes, and a table of them.
  void write_photos(int count) const {
    std::string table = "file,label\n";
    for (int i = 0; i < count; ++i) {
      const Bytes image = png_of(gradient(3, 5 + i % 7, 4 + i % 5, 3 * i));
      const char* const name = i % 3 == 0 ? "cat" : "dog";
      folder_.write("classes/" + std::string(name) + "/" + std::to_string(1000 + i) + ".png", image);
      folder_.write("flat/" + std::to_string(1000 + i) + ".png", image);
      table += std::to_string(1000 + i) + ".png," + name + "\n";
    }
    write_text("flat/labels.csv", table);
  }

  ScratchFolder folder_;
};

void expect_equal_images(const Dataset& one, const Dataset& other) {
  EXPECT_EQ(one.info().class_names, other.info().class_names);
  EXPECT_EQ(one.info().classes, other.info().classes);
  const Contents a = contents_of(one);
  const Contents b = contents_of(other);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_TRUE(a.images == b.images);
}

TEST_F(Conversions, OfBinarySetsHaveTheSameDigests) {
  folder_.write("idx/train-images-idx3-ubyte.gz", gzipped(idx_file({0x803, 90, 3, 5}, 90 * 15)));
  folder_.write("idx/train-labels-idx1-ubyte", idx_labels(Bytes(90, 1)));
  folder_.write("idx/t10k-images-idx3-ubyte", idx_file({0x803, 2, 3, 5}, 30, 9));
  folder_.write("idx/t10k-labels-idx1-ubyte.gz", gzipped(idx_labels({1, 1})));
  folder_.write("cifar/data_batch_1.bin.gz", gzipped(cifar_file({4, 7, 1})));
  folder_.write("cifar/data_batch_2.bin", cifar_file({0}, 40));
  folder_.write("cifar/test_batch.bin", cifar_file({7, 4}, 60));
  for (const char* source : {"idx", "cifar"}) {
    const OwnedData data = open(path(source));
    write_data_file(data.pair, path(source) + ".h5", {.threads = 3});
    const OwnedData file = open(path(source) + ".h5");
    EXPECT_EQ(file.pair.train->digest(), data.pair.train->digest()) << source;
    EXPECT_EQ(file.pair.test->digest(), data.pair.test->digest()) << source;
    EXPECT_EQ(file.pair.train->info().statistics, data.pair.train->info().statistics);
    EXPECT_EQ(file.pair.train->info().name, data.pair.train->info().name);
    expect_equal_images(*file.pair.train, *data.pair.train);
  }
}

TEST_F(Conversions, OfSamplesHeldOutHaveThemAsTheirTestSet) {
  folder_.write("idx/train-images-idx3-ubyte", idx_file({0x803, 200, 2, 2}, 800));
  Bytes labels(200);
  std::iota(labels.begin(), labels.end(), std::uint8_t{0});
  folder_.write("idx/train-labels-idx1-ubyte", idx_labels(labels));
  for (const char* name : {"flat/a.png", "flat/b.png", "flat/c.png", "flat/d.png", "flat/e.jpg"}) {
    folder_.write(name, png_of(gradient(1, 6, 6, name[5])));
  }
  write_text("flat/labels.csv", "file,label\na.png,x\nb.png,y\nc.png,x\nd.png,y\ne.jpg,x\n");
  for (const char* source : {"idx", "flat"}) {
    const OwnedData data = open(path(source), 0.4);
    write_data_file(data.pair, path(source) + ".h5", {.threads = 2});
    const OwnedData file = open(path(source) + ".h5");
    ASSERT_NE(file.pair.test, nullptr) << source;
    EXPECT_EQ(file.pair.test->info().samples, data.pair.train->info().samples * 2 / 3);
    expect_equal_images(*file.pair.train, *data.pair.train);
    expect_equal_images(*file.pair.test, *data.pair.test);
  }
}

TEST_F(Conversions, OfTheSameImagesInFoldersAndInATableAreEqual) {
  write_photos(30);
  for (const char* source : {"classes", "flat"}) {
    write_data_file(open(path(source)).pair, path(source) + ".h5", {.image_size = 8, .threads = 2});
  }
  const Contents classes = contents_of(*open(path("classes.h5")).pair.train);
  const Contents flat = contents_of(*open(path("flat.h5")).pair.train);
  std::multiset<Bytes> by_class[2];
  for (const Contents* contents : {&classes, &flat}) {
    for (std::size_t i = 0; i < contents->labels.size(); ++i) {
      const auto first = contents->images.begin() + static_cast<std::ptrdiff_t>(i * 192);
      Bytes image(first, first + 192);
      image.push_back(static_cast<std::uint8_t>(contents->labels[i]));
      by_class[contents == &flat].insert(std::move(image));
    }
  }
  EXPECT_TRUE(by_class[0] == by_class[1]);
}

TEST_F(Conversions, GiveTheSameBytesOnAnyNumberOfThreads) {
  write_photos(300);  // more than one block
  write_data_file(open(path("classes"), 0.1).pair, path("1.h5"), {.image_size = 6});
  write_data_file(open("synthetic:3000x3x32x32:4").pair, path("memory 1.h5"));
  for (const int threads : {2, 3, 16}) {
    write_data_file(open(path("classes"), 0.1).pair, path("n.h5"), {.image_size = 6, .threads = threads});
    EXPECT_TRUE(read_file_bytes(path("n.h5")) == read_file_bytes(path("1.h5"))) << threads;
    write_data_file(open("synthetic:3000x3x32x32:4").pair, path("n.h5"), {.threads = threads});
    EXPECT_TRUE(read_file_bytes(path("n.h5")) == read_file_bytes(path("memory 1.h5"))) << threads;
  }
}

TEST_F(Conversions, ReportProgressInTheCallingThread) {
  write_photos(150);
  std::int64_t all = 0;
  int calls = 0;
  const auto caller = std::this_thread::get_id();
  write_data_file(open(path("classes"), 0.2).pair, path("f.h5"),
                  {.image_size = 6, .threads = 3, .after_samples = [&](std::int64_t more) {
                     EXPECT_EQ(std::this_thread::get_id(), caller);
                     EXPECT_GT(more, 0);
                     all += more;
                     ++calls;
                   }});
  EXPECT_EQ(all, 150);
  EXPECT_GT(calls, 2) << "more than once a set";
}

TEST_F(Conversions, NameTheFirstBadImageOnAnyNumberOfThreads) {
  write_photos(300);
  Bytes damaged = png_of(gradient(3, 90, 90));
  damaged.erase(damaged.end() - 30, damaged.end());
  folder_.write("classes/cat/1090.png", damaged);
  folder_.write("classes/dog/1000.png", damaged);
  for (const int threads : {1, 2, 8}) {
    const OwnedData data = open(path("classes"));
    EXPECT_THAT(thrown_by([&] { write_data_file(data.pair, path("f.h5"), {.image_size = 6, .threads = threads}); }),
                reports(ErrorSource::input, "cat/1090.png' cannot be decoded"));
    EXPECT_FALSE(std::filesystem::exists(path("f.h5")));
  }
}

}  // namespace
}  // namespace tutti
