// Data files of encoded images: equal to the folder that they were made of, whatever interrupted their making.

#include "tutti/base/error.hpp"
#include "tutti/data/data_file.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/seal.hpp"

#include "data/mutator.hpp"
#include "data/written_images.hpp"
#include "data/written_tars.hpp"
#include "support/lone_child.hpp"
#include "support/overwrite.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using testing_support::Bytes;
using testing_support::bytes_of;
using testing_support::contents_of;
using testing_support::gradient;
using testing_support::jpeg_of;
using testing_support::LongNames;
using testing_support::png_of;
using testing_support::tar_of;
using testing_support::TarEntry;
using testing_support::turned;

namespace fs = std::filesystem;

class EncodedFile : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name); }

  // Photos of different sizes in class folders, some turned, gray or PNG.
  void write_photos(int train, int test = 5) const {
    for (int i = 0; i < train + test; ++i) {
      const int height = 20 + i * 7 % 50;
      const int width = 24 + i * 5 % 40;
      const std::string set = i < train ? "train" : "val";
      const std::string name = fmt::format("in/{}/{}/{:03}", set, i % 3 == 0 ? "cat" : "dog", i);
      if (i % 5 == 1) {
        folder_.write(name + ".png", png_of(gradient(i % 2 == 0 ? 3 : 1, height, width, i)));
      } else {
        const Bytes jpeg = jpeg_of(gradient(i % 7 == 2 ? 1 : 3, height, width, i));
        folder_.write(name + (i % 4 == 0 ? ".JPEG" : ".jpg"), i % 6 == 0 ? turned(jpeg, 6) : jpeg);
      }
    }
  }
  static DataRequest request(const std::string& source) { return {.train = source}; }
  static OwnedData open(const std::string& source, double validation_ratio = 0, bool exif = true) {
    DataRequest made = request(source);
    made.validation_ratio = validation_ratio;
    made.applies_exif = exif;
    return open_data(made);
  }
  EncodedReport encode(const std::string& source, const std::string& target, EncodedOptions options = {}) const {
    options.threads = 3;
    return write_encoded_file(request(path(source)), path(target), options);
  }
  Bytes content(const std::string& name) const {
    const auto bytes = read_file_bytes(path(name));
    const auto* const first = reinterpret_cast<const std::uint8_t*>(bytes.data());
    return {first, first + bytes.size()};
  }
  // Stops a conversion after this many images.
  void stop_after(std::int64_t images, const std::string& source, const std::string& target,
                  EncodedOptions options = {}) const {
    struct Stop {};
    options.after_samples = [&, done = std::int64_t{0}](std::int64_t more) mutable {
      if ((done += more) >= images) throw Stop{};
    };
    EXPECT_THROW(encode(source, target, options), Stop);
  }

  ScratchFolder folder_;
};

void expect_equal_sets(const Dataset& one, const Dataset& other) {
  EXPECT_EQ(one.info().name, other.info().name);
  EXPECT_EQ(one.info().image, other.info().image);
  EXPECT_EQ(one.info().class_names, other.info().class_names);
  EXPECT_EQ(one.info().class_samples, other.info().class_samples);
  EXPECT_EQ(one.info().contents, other.info().contents);
  EXPECT_EQ(one.info().has_short_side, other.info().has_short_side);
  EXPECT_EQ(one.digest(), other.digest());
  EXPECT_EQ(contents_of(one).labels, contents_of(other).labels);
  EXPECT_TRUE(contents_of(one).images == contents_of(other).images);
  for (std::int64_t i = 0; i < one.info().samples; ++i) EXPECT_EQ(one.name_of(i), other.name_of(i));
}

void expect_equal_pairs(const DataPair& one, const DataPair& other) {
  expect_equal_sets(*one.train, *other.train);
  ASSERT_EQ(one.test != nullptr, other.test != nullptr);
  if (one.test) expect_equal_sets(*one.test, *other.test);
}

TEST_F(EncodedFile, IsTheSameDataSetAsItsFolder) {
  write_photos(40);
  folder_.write("in/train/cat/\xff.png", png_of(gradient(3, 9, 8)));
  const EncodedReport report = encode("in", "set.h5");
  EXPECT_EQ(report.train_samples, 41);
  EXPECT_EQ(report.test_samples, 5);
  EXPECT_FALSE(fs::exists(path("set.h5.partial")));
  for (const double ratio : {0.0, 0.25}) {
    for (const bool exif : {true, false}) {
      expect_equal_pairs(open(path("set.h5"), ratio, exif).pair, open(path("in"), ratio, exif).pair);
    }
  }
  // The same again, from the file itself.
  encode("set.h5", "copy.h5");
  EXPECT_TRUE(content("copy.h5") == content("set.h5"));
  for (const char* other : {"glyphs", "synthetic:20x1x4x4:2"}) {
    EXPECT_THAT(thrown_by([&] { write_encoded_file(request(other), path("o.h5"), {}); }),
                reports(ErrorSource::usage, "--encoded keeps image files", "leave it out"));
  }
}

TEST_F(EncodedFile, HasImagesOfOneSizeAsTheFolderHas) {
  for (int i = 0; i < 6; ++i) {
    folder_.write(fmt::format("in/{}/{}.png", i % 2, i), png_of(gradient(1, 6, 5, 9 * i)));
  }
  encode("in", "set.h5");
  const OwnedData data = open(path("set.h5"));
  expect_equal_pairs(data.pair, open(path("in")).pair);
  EXPECT_EQ(data.pair.train->info().image, (Shape{1, 6, 5}));
  // The statistics of images of one size are those of the decoded data file.
  write_data_file(open(path("in")).pair, path("pixels.h5"));
  const ChannelStatistics expected = open(path("pixels.h5")).pair.train->info().statistics;
  EXPECT_NEAR(data.pair.train->info().statistics.mean.at(0), expected.mean.at(0), 1e-12);
  EXPECT_NEAR(data.pair.train->info().statistics.deviation.at(0), expected.deviation.at(0), 1e-12);
  // A gray training set and a test set in color are both in color.
  folder_.write("color/0/1.png", png_of(gradient(3, 6, 5)));
  folder_.write("color/1/1.png", png_of(gradient(3, 6, 5)));
  DataRequest mixed = request(path("set.h5"));
  mixed.test = path("color");
  const OwnedData both = open_data(mixed);
  EXPECT_EQ(both.pair.train->info().image, (Shape{3, 6, 5}));
  EXPECT_EQ(both.pair.train->info().statistics.mean.size(), 3u);
}

TEST_F(EncodedFile, ResizesLargerImagesAndKeepsTheBytesOfOthers) {
  folder_.write("in/a/large.jpg", turned(jpeg_of(gradient(3, 40, 60)), 6));
  folder_.write("in/a/large.png", png_of(gradient(1, 90, 30)));
  folder_.write("in/b/small.jpg", turned(jpeg_of(gradient(3, 20, 90)), 6));
  const EncodedReport report = encode("in", "set.h5", {.short_side = 20, .quality = 95});
  EXPECT_EQ(report.encoded_again, 2);
  const OwnedData data = open(path("set.h5"));
  const Dataset& set = *data.pair.train;
  const std::array<std::int64_t, 3> all{0, 1, 2};
  SampleBatch batch;
  set.read(all, batch);
  EXPECT_EQ(batch.images[0].shape, (Shape{3, 30, 20})) << "upright";
  EXPECT_EQ(batch.images[1].shape, (Shape{3, 60, 20}));
  EXPECT_EQ(batch.images[2].shape, (Shape{3, 90, 20}));
  std::vector<std::byte> buffer;
  const auto first_byte = [&](std::int64_t i) { return set.image_file(i, buffer).bytes.front(); };
  EXPECT_EQ(first_byte(0), 0xFF) << "a JPEG file";
  EXPECT_EQ(first_byte(1), 0x89) << "a PNG file";
  EXPECT_TRUE(std::ranges::equal(set.image_file(2, buffer).bytes, content("in/b/small.jpg")));
  // Close to the original: gradients survive.
  const std::vector<std::int64_t> two{1};
  SampleBatch original;
  open(path("in")).pair.train->read(two, original);
  for (std::int64_t y = 0; y < 60; ++y) {
    EXPECT_NEAR(batch.images[1].pixels[y * 20 + 10], original.images[0].pixels[(y * 3 / 2) * 30 + 15], 2) << y;
  }
  encode("in", "long.h5", {.long_side = 45});
  EXPECT_EQ(open(path("long.h5")).pair.train->info().image, (Shape{3, 0, 0}));
  // From a file of whole images, the same bytes.
  encode("in", "whole.h5");
  encode("whole.h5", "again.h5", {.short_side = 20, .quality = 95});
  EXPECT_TRUE(content("again.h5") == content("set.h5"));
  EXPECT_THAT(thrown_by([&] { encode("in", "x.h5", {.short_side = 3, .long_side = 5}); }),
              reports(ErrorSource::usage, "--short-side and --long-side", "give one of them"));
}

TEST_F(EncodedFile, HasTheSameBytesAfterAKillAnywhere) {
  write_photos(150, 20);
  const EncodedOptions options{.short_side = 30, .shard_bytes = 150'000, .checkpoint_bytes = 1};
  const EncodedReport report = encode("in", "whole.h5", options);
  ASSERT_GE(report.files, 2);
  std::size_t kills = 0;
  for (const std::int64_t at : {1, 17, 40, 100, 149, 160, 170}) {
    const std::string target = fmt::format("k{}.h5", at);
    const pid_t child = ::fork();
    if (child == 0) {
      EncodedOptions killed = options;
      killed.after_samples = [&, done = std::int64_t{0}](std::int64_t more) mutable {
        if ((done += more) >= at) static_cast<void>(::raise(SIGKILL));
      };
      encode("in", target, killed);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    kills += WIFSIGNALED(status) ? 1 : 0;
    EXPECT_FALSE(fs::exists(path(target)));
    std::int64_t before = 0;
    EncodedOptions rest = options;
    rest.at_start = [&](std::int64_t done, std::int64_t all) {
      before = done;
      EXPECT_EQ(all, 170);
    };
    encode("in", target, rest);
    EXPECT_GE(before, at);
    EXPECT_TRUE(content(target) == content("whole.h5")) << at;
    EXPECT_TRUE(content(fmt::format("k{}-00001.h5", at)) == content("whole-00001.h5")) << at;
    EXPECT_FALSE(fs::exists(path(target + ".partial")));
  }
  EXPECT_EQ(kills, 7u);
}

TEST_F(EncodedFile, HasTheSameBytesIfItsEndWasInterrupted) {
  write_photos(60, 20);
  const EncodedOptions options{.shard_bytes = 100'000};
  encode("in", "whole.h5", options);
  ASSERT_TRUE(fs::exists(path("whole-00001.h5")));
  // The shards are there, and the first file is not.
  fs::create_directories(path("a.h5/in the way"));
  EXPECT_EQ(thrown_by([&] { encode("in", "a.h5", options); }).source(), ErrorSource::save);
  EXPECT_TRUE(fs::exists(path("a-00001.h5")));
  fs::remove_all(path("a.h5"));
  encode("in", "a.h5", options);
  EXPECT_TRUE(content("a.h5") == content("whole.h5"));
  EXPECT_TRUE(content("a-00001.h5") == content("whole-00001.h5"));
  // HDF5's structures are written in part, and the journal ends within a record.
  stop_after(80, "in", "b.h5");
  { RawFileWriter(path("b.h5.partial/files-00000"), {}).add_text("/format", "something else"); }
  const Bytes journal = content("b.h5.partial/journal");
  folder_.write("b.h5.partial/journal", Bytes(journal.begin(), journal.end() - 3));
  encode("in", "b.h5");
  encode("in", "c.h5");
  EXPECT_TRUE(content("b.h5") == content("c.h5"));
}

TEST_F(EncodedFile, IsContinuedOnlyWithTheSameSourceAndOptions) {
  write_photos(40);
  stop_after(10, "in", "set.h5");
  EXPECT_TRUE(fs::exists(path("set.h5.partial")));
  EXPECT_THAT(thrown_by([&] { encode("in", "set.h5", {.short_side = 10}); }),
              reports(ErrorSource::input, "set.h5.partial'", "(short side: 10 instead of 0)", "remove this folder"));
  const std::string photo = "in/train/cat/000.JPEG";
  const Bytes before = content(photo);
  folder_.write(photo, jpeg_of(gradient(3, 11, 11)));
  EXPECT_THAT(thrown_by([&] { encode("in", "set.h5"); }), reports(ErrorSource::input, "set.h5.partial'", "(source: "));
  folder_.write(photo, before);  // the same bytes, changed later
  EXPECT_THAT(thrown_by([&] { encode("in", "set.h5"); }), reports(ErrorSource::input, "set.h5.partial'", "(source: "));
  fs::remove_all(path("set.h5.partial"));
  encode("in", "set.h5");
  expect_equal_pairs(open(path("set.h5")).pair, open(path("in")).pair);
}

TEST_F(EncodedFile, RefusesOrLeavesOutBadImages) {
  write_photos(30);
  Bytes cut = content("in/train/dog/004.JPEG");
  cut.resize(cut.size() / 2);
  folder_.write("in/train/dog/004.JPEG", cut);
  folder_.write("in/train/dog/zz.png", bytes_of("no image"));
  EXPECT_THAT(thrown_by([&] { encode("in", "set.h5"); }),
              reports(ErrorSource::input, "dog/004.JPEG' cannot be decoded", "--skip-bad-images"));
  DataRequest skipping = request(path("in"));
  skipping.skip_bad_images = true;
  const EncodedReport report = write_encoded_file(skipping, path("set.h5"), {});
  EXPECT_EQ(report.skipped, 2);
  EXPECT_THAT(report.first_problem, mentions("dog/004.JPEG"));
  expect_equal_pairs(open(path("set.h5")).pair, open_data(skipping).pair);
  // A split counts the good images, as that of the folder does.
  fs::remove_all(path("in/test"));
  skipping.validation_ratio = 0.3;
  struct Stop {};
  EncodedOptions stopping{.checkpoint_bytes = 1};
  stopping.after_samples = [](std::int64_t) { throw Stop{}; };
  EXPECT_THROW(write_encoded_file(skipping, path("split.h5"), stopping), Stop);
  write_encoded_file(skipping, path("split.h5"), {});
  const OwnedData split = open(path("split.h5"));
  const OwnedData expected = open_data(skipping);
  EXPECT_TRUE(contents_of(*split.pair.train).images == contents_of(*expected.pair.train).images);
  EXPECT_TRUE(contents_of(*split.pair.test).images == contents_of(*expected.pair.test).images);
  skipping.validation_ratio = 0;
  folder_.write("bad/a/1.png", bytes_of("no image"));
  skipping.train = path("bad");
  EXPECT_THAT(thrown_by([&] { write_encoded_file(skipping, path("bad.h5"), {}); }),
              reports(ErrorSource::input, "all images of bad ", "first the image '"));
}

TEST_F(EncodedFile, CanBeSeveralFilesOfWhichNoneMayBeMissingOrExchanged) {
  write_photos(60, 20);
  const EncodedReport report = encode("in", "set.h5", {.shard_bytes = 80'000});
  ASSERT_GE(report.files, 3);
  expect_equal_pairs(open(path("set.h5")).pair, open(path("in")).pair);
  encode("set.h5", "one.h5");
  encode("in", "direct.h5");
  EXPECT_TRUE(content("one.h5") == content("direct.h5"));
  fs::rename(path("set-00001.h5"), path("away.h5"));
  EXPECT_THAT(thrown_by([&] { open(path("set.h5")); }),
              reports(ErrorSource::io, "set-00001.h5' is missing", "restore it"));
  fs::copy(path("set-00002.h5"), path("set-00001.h5"));
  EXPECT_THAT(thrown_by([&] { open(path("set.h5")); }),
              reports(ErrorSource::input, "set-00001.h5' is not the file ", "set.h5'", "restore both"));
  fs::remove(path("set.h5"));
  EXPECT_THAT(thrown_by([&] { encode("in", "set.h5", {.shard_bytes = 80'000}); }),
              reports(ErrorSource::usage, "set-00001.h5' exists", "remove it"));
}

TEST_F(EncodedFile, IsTheSameFromAFolderAListAndArchives) {
  write_photos(40, 0);
  fs::rename(path("in/train"), path("photos"));
  const OwnedData folder = open(path("photos"));
  std::string list = "path\tlabel\n";
  std::vector<TarEntry> first{{"./", {}, '5'}};
  std::vector<TarEntry> second;
  for (std::int64_t i = 0; i < folder.pair.train->info().samples; ++i) {
    const std::string name = folder.pair.train->name_of(i);
    const std::string label = name.substr(0, name.find('/'));
    list += name + "\t" + label + "\n";
    auto& tar = i < 23 ? first : second;
    tar.push_back({"./" + name, content("photos/" + name)});
    const std::string stem = name.substr(0, name.find('.'));
    tar.push_back({"./" + stem + ".json", bytes_of("{}")});
    tar.push_back({"./" + stem + ".cls", bytes_of(label + "\n")});
  }
  folder_.write("photos/photos.tsv", bytes_of(list));
  std::string spaced = list.substr(list.find('\n') + 1);
  std::ranges::replace(spaced, '\t', ' ');
  folder_.write("photos/photos.txt", bytes_of(spaced));
  folder_.write("tars/photos-0.tar", tar_of(first));
  folder_.write("tars/photos-1.tar", tar_of(second, LongNames::pax));
  encode("photos", "set.h5");
  encode("photos/photos.tsv", "list.h5");
  EXPECT_TRUE(content("list.h5") == content("set.h5"));
  expect_equal_pairs(open(path("photos/photos.txt")).pair, folder.pair);
  expect_equal_pairs(open(path("photos/photos.tsv")).pair, folder.pair);
  for (const char* tars : {"tars/photos-{0..1}.tar", "tars/photos-*.tar"}) {
    encode(tars, "tar.h5");
    EXPECT_TRUE(content("tar.h5") == content("set.h5")) << tars;
    fs::remove(path("tar.h5"));
  }
  // Stopped within the second archive.
  const EncodedOptions options{.checkpoint_bytes = 1};
  for (const std::int64_t at : {5, 25, 40}) {
    stop_after(at, "tars/photos-{0..1}.tar", "tar.h5", options);
    encode("tars/photos-{0..1}.tar", "tar.h5", options);
    EXPECT_TRUE(content("tar.h5") == content("set.h5")) << at;
    fs::remove(path("tar.h5"));
  }
  stop_after(5, "tars/photos-{0..1}.tar", "tar.h5", options);
  folder_.write("tars/photos-1.tar", tar_of(second));
  EXPECT_THAT(thrown_by([&] { encode("tars/photos-{0..1}.tar", "tar.h5", options); }),
              reports(ErrorSource::input, "tar.h5.partial'", "(source: "));
}

std::size_t samples_in(const std::string& path) {
  return static_cast<std::size_t>(open_data({.train = path}).pair.train->info().samples);
}

TEST_F(EncodedFile, TakesClassNumbersOfArchivesAndATestSetBesideThem) {
  const std::string long_name = std::string(120, 'x') + "/b";
  for (const LongNames names : {LongNames::gnu, LongNames::pax}) {
    std::vector<TarEntry> train;
    for (const int label : {10, 2, 10}) {
      const std::string key = fmt::format("{}{}", long_name, train.size());
      train.push_back({key + ".cls", bytes_of(fmt::format("{}", label))});
      train.push_back({key + ".png", png_of(gradient(3, 5, 5, label))});
    }
    folder_.write("sets/train-0.tar", tar_of(train, names));
    folder_.write("sets/val-0.tar", tar_of({{"v.jpg", jpeg_of(gradient(3, 9, 5))}, {"v.cls", bytes_of("2")}}));
    encode("sets", "set.h5");
    const OwnedData data = open(path("set.h5"));
    EXPECT_THAT(data.pair.train->info().class_names, ElementsAre("2", "10"));
    EXPECT_THAT(contents_of(*data.pair.train).labels, ElementsAre(1, 0, 1));
    EXPECT_THAT(contents_of(*data.pair.test).labels, ElementsAre(0));
    EXPECT_EQ(data.pair.train->info().name, "sets");
    EXPECT_EQ(data.pair.train->name_of(0), long_name + "0.png");
    fs::remove(path("set.h5"));
  }
  folder_.write("sets/val-0.tar", tar_of({{"v.jpg", jpeg_of(gradient(3, 9, 5))}, {"v.cls", bytes_of("3")}}));
  EXPECT_THAT(thrown_by([&] { encode("sets", "set.h5"); }),
              reports(ErrorSource::input, "the test image 'v.jpg' has the class '3'"));
}

TEST_F(EncodedFile, RefusesArchivesThatAreTruncatedOrNoArchivesByName) {
  const Bytes image = png_of(gradient(3, 30, 30));
  const std::vector<TarEntry> good{{"a.png", image}, {"a.cls", bytes_of("1")}};
  const auto problem = [&](const Bytes& tar) {
    fs::remove_all(path("set.h5.partial"));
    folder_.write("t.tar", tar);
    const Error error = thrown_by([&] { encode("t.tar", "set.h5"); });
    EXPECT_THAT(error, reports(ErrorSource::input, "t.tar'"));
    return std::string(error.what());
  };
  Bytes tar = tar_of(good);
  EXPECT_THAT(problem(Bytes(tar.begin(), tar.begin() + 700)), mentions("it is truncated"));
  EXPECT_THAT(problem(Bytes(tar.begin(), tar.end() - 1024)), mentions("it is truncated"));
  tar[3] ^= 1;
  EXPECT_THAT(problem(tar), mentions("no valid tar header"));
  EXPECT_THAT(problem(testing_support::gzipped(tar_of(good))), mentions("it is compressed", "decompress it"));
  EXPECT_THAT(problem(tar_of({{"a.png", image}, {"b.png", image}})), mentions("'a.png' ", "add 'a.cls'"));
  EXPECT_THAT(problem(tar_of({{"a.png", image}, {"a.jpg", image}})), mentions("'a.png' and 'a.jpg' ", "one sample"));
  EXPECT_THAT(problem(tar_of({{"a.png", {}, '2'}, {"a.cls", bytes_of("1")}})), mentions("'a.png' ", "is a link"));
  Bytes huge = tar_of(good);
  testing_support::put(huge, 124, std::string("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12));
  testing_support::put(huge, 148, "        ");
  int sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += huge[i];
  testing_support::put(huge, 148, fmt::format("{:06o}", sum));
  EXPECT_THAT(problem(huge), mentions("it is truncated"));
  folder_.write("t.tar", tar_of({{"a.png", image}, {"a.cls", bytes_of("1\n2")}}));
  EXPECT_THAT(thrown_by([&] { encode("t.tar", "lines.h5"); }),
              reports(ErrorSource::input, "a class of 'a.png' has a line break", "in its name '1"));
  EXPECT_THAT(thrown_by([&] { encode("t-{0..1}.tar", "absent.h5"); }),
              reports(ErrorSource::io, "cannot look into '", "t-0.tar'"));
  EXPECT_THAT(thrown_by([&] { open(path("t.tar")); }),
              reports(ErrorSource::input, "t.tar' is a tar archive", "data convert", "--encoded"));
}

TEST_F(EncodedFile, OfDamagedArchivesHasWholeImagesOrIsNotMade) {
  std::vector<TarEntry> entries;
  for (int i = 0; i < 6; ++i) {
    entries.push_back({fmt::format("{}.png", i), png_of(gradient(1, 8, 8, i))});
    entries.push_back({fmt::format("{}.cls", i), bytes_of(fmt::format("{}", i % 2))});
  }
  const Bytes good = tar_of(entries);
  std::map<int, int> outcomes;
  for (std::uint32_t number = 0; number < testing_support::mutants(150); ++number) {
    Bytes bytes = good;
    testing_support::Mutator(number).damage(bytes);
    folder_.write("t.tar", bytes);
    fs::remove_all(path("set.h5.partial"));
    fs::remove(path("set.h5"));
    ++outcomes[outcome_in_child([&] {
      DataRequest made = request(path("t.tar"));
      made.skip_bad_images = number % 2 == 0;
      write_encoded_file(made, path("set.h5"), {});
      return samples_in(path("set.h5")) <= 6;
    })];
  }
  for (const auto& [outcome, count] : outcomes) std::printf("%s: %d\n", name_of_outcome(outcome).c_str(), count);
  EXPECT_EQ(outcomes[refused] + outcomes[read_right], static_cast<int>(testing_support::mutants(150)));
  EXPECT_GT(outcomes[refused], 0);
}

// 500 files with damage anywhere: refused by name when they are opened or read, or their bad images are left out.
TEST_F(EncodedFile, IsRefusedByNameOrLosesImagesIfItIsDamaged) {
  write_photos(30);
  encode("in", "good.h5", {.shard_bytes = 60'000});
  const Bytes good = content("good.h5");
  const Bytes shard = content("good-00001.h5");
  std::map<std::string, Bytes> images;
  const OwnedData data = open(path("good.h5"));
  for (const Dataset* set : {data.pair.train.get(), data.pair.test.get()}) {
    std::vector<std::byte> buffer;
    for (std::int64_t i = 0; i < set->info().samples; ++i) {
      const auto bytes = set->image_file(i, buffer).bytes;
      images[set->name_of(i)] = Bytes(bytes.begin(), bytes.end());
    }
  }
  std::map<int, int> outcomes;
  int skipped = 0;
  const auto files = testing_support::mutants(500);
  for (std::uint32_t number = 0; number < files; ++number) {
    const bool skips = number % 3 == 0;
    const bool in_shard = number % 4 == 3;
    Bytes bytes = in_shard ? shard : good;
    testing_support::Mutator(number).damage(bytes);
    folder_.write("good.h5", in_shard ? good : bytes);
    folder_.write("good-00001.h5", in_shard ? bytes : shard);
    const int found = outcome_in_child([&] {
      DataRequest made = request(path("good.h5"));
      made.skip_bad_images = skips;
      std::size_t count = 0;
      try {
        const OwnedData opened = open_data(made);
        std::vector<std::byte> buffer;
        for (const Dataset* set : {opened.pair.train.get(), opened.pair.test.get()}) {
          count += static_cast<std::size_t>(set->info().samples) + set->info().skipped.size();
          SampleBatch batch;
          for (std::int64_t i = 0; i < set->info().samples; ++i) {
            if (!std::ranges::equal(set->image_file(i, buffer).bytes, images.at(set->name_of(i)))) return false;
            set->read(std::array<std::int64_t, 1>{i}, batch);
          }
        }
        if (count != images.size()) return false;
        if (!opened.pair.notes.empty()) ::_exit(99);
      } catch (const Error& error) {
        if (std::string_view(error.what()).find("good") == std::string_view::npos) return false;
        throw;
      }
      return true;
    });
    if (found == 99) {
      ++skipped;
      EXPECT_TRUE(skips);
    } else {
      ++outcomes[found];
    }
    EXPECT_TRUE(found == refused || found == read_right || found == 99) << number << ": " << name_of_outcome(found);
  }
  for (const auto& [outcome, count] : outcomes) std::printf("%s: %d\n", name_of_outcome(outcome).c_str(), count);
  std::printf("images left out: %d\n", skipped);
  EXPECT_GT(outcomes[refused], 0);
  EXPECT_GT(skipped, 0);
}

// Malicious files, whose seal is right.
TEST_F(EncodedFile, WithAForgedSealIsNeverReadAsSomethingElse) {
  write_photos(12, 3);
  encode("in", "good.h5");
  const Bytes whole = content("good.h5");
  std::uint64_t length = 0;
  std::memcpy(&length, &whole[whole.size() - 24], sizeof length);
  const Bytes good(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
  const testing_support::Contents expected = contents_of(*open(path("good.h5")).pair.train);
  std::map<int, int> outcomes;
  for (std::uint32_t number = 0; number < testing_support::mutants(120); ++number) {
    Bytes bytes = good;
    // The index, which follows the images.
    Bytes index(bytes.begin() + (1 << 16) * 3, bytes.end());
    testing_support::Mutator mutator(number);
    mutator.once_in(2) ? mutator.change_bytes(index) : mutator.change_size(index);
    std::copy(index.begin(), index.end(), bytes.begin() + (1 << 16) * 3);
    folder_.write("good.h5", bytes);
    const auto seal = seal_for(path("good.h5"), {});
    for (const std::byte byte : seal) bytes.push_back(static_cast<std::uint8_t>(byte));
    folder_.write("good.h5", bytes);
    ++outcomes[outcome_in_child([&] {
      const auto found = contents_of(*open(path("good.h5")).pair.train);
      return found.images == expected.images || found.labels != expected.labels;
    })];
  }
  for (const auto& [outcome, count] : outcomes) std::printf("%s: %d\n", name_of_outcome(outcome).c_str(), count);
  EXPECT_EQ(outcomes[read_wrong] + outcomes[other_exception], 0);
}

TEST_F(EncodedFile, IsRefusedIfItHasChangedSinceItWasListed) {
  write_photos(12, 3);
  encode("in", "set.h5");
  const OwnedData listed = open(path("set.h5"));
  fs::last_write_time(path("set.h5"), fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_THAT(thrown_by([&] { open_loaded(listed.block); }),
              reports(ErrorSource::input, "set.h5' has changed ", "start again"));
}

TEST_F(EncodedFile, IsVerifiedAsAWholeOnRequest) {
  write_photos(20, 0);
  encode("in", "set.h5");
  DataRequest whole = request(path("set.h5"));
  whole.verification = Verification::sample;
  whole.data_file_check = DataFileCheck::all;
  expect_equal_sets(*open_data(whole).pair.train, *open(path("in")).pair.train);
  Bytes bytes = content("set.h5");
  bytes[(1 << 16) + 700] ^= 1;
  folder_.write("set.h5", bytes);
  EXPECT_EQ(samples_in(path("set.h5")), 20u);
  EXPECT_THAT(
      thrown_by([&] { open_data(whole); }),
      reports(ErrorSource::input, "1 of 20 images in '", "set.h5' is damaged: the image 'cat/", "--skip-bad-images"));
}

}  // namespace
}  // namespace tutti
