// trainer data, as users start it.

#include "tutti/backend/backend.hpp"
#include "tutti/data/batch_loader.hpp"

#include "data/written_images.hpp"
#include "data/written_tars.hpp"
#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

namespace tutti::test {
namespace {

using tutti::testing_support::Bytes;
using tutti::testing_support::cifar_file;
using tutti::testing_support::contents_of;
using tutti::testing_support::gradient;
using tutti::testing_support::idx_file;
using tutti::testing_support::idx_labels;
using tutti::testing_support::open_named;
using tutti::testing_support::png_of;

class DataCommands : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name); }
  // The digest of the weights after a short training.
  static std::string weights(const std::string& data, const Words& more) {
    const ChildResult run =
        run_trainer(2, with({"--data", data, "--model", "mlp", "--batch-size", "8", "--epochs", "2"}, more));
    EXPECT_EQ(run.status, 0) << run.err;
    return last_word(run.err, "weights ");
  }
  static ChildResult data(const Words& words) { return run_trainer(with({"data"}, words)); }

  ScratchFolder folder_;
};

TEST_F(DataCommands, TrainToTheSameBitsOnASourceAndOnItsFile) {
  folder_.write("idx/train-images-idx3-ubyte", idx_file({0x803, 40, 4, 4}, 640));
  folder_.write("idx/train-labels-idx1-ubyte", idx_labels(Bytes(40, 1)));
  folder_.write("idx/t10k-images-idx3-ubyte", idx_file({0x803, 3, 4, 4}, 48, 9));
  folder_.write("idx/t10k-labels-idx1-ubyte", idx_labels({1, 1, 1}));
  folder_.write("cifar/data_batch_1.bin", cifar_file({4, 7, 1, 0, 9, 2}));
  folder_.write("cifar/test_batch.bin", cifar_file({9, 4}, 60));
  std::string table = "file,label\n";
  for (int i = 0; i < 20; ++i) {
    const Bytes image = png_of(gradient(3, 8, 8, 11 * i));
    folder_.write(fmt::format("folders/{}/{}.png", i % 2 == 0 ? "cat" : "dog", i), image);
    folder_.write(fmt::format("flat/{}.png", i), image);
    table += fmt::format("{}.png,{}\n", i, i % 2 == 0 ? "cat" : "dog");
  }
  folder_.write("flat/labels.csv", {table.begin(), table.end()});
  struct Case {
    std::string source;
    Words options;
  };
  for (const auto& [source, options] : {Case{"idx", {}}, Case{"cifar", {}}, Case{"folders", {}},
                                        Case{"flat", {"--validation-ratio", "0.25", "--seed", "4"}}}) {
    const std::string file = path(source + ".h5");
    const ChildResult made = data(with({"convert", path(source), file}, options));
    EXPECT_THAT(made, ends(0));
    EXPECT_THAT(made.out, mentions(file + ": "));
    const std::string on_source = weights(path(source), with(options, {"--normalize", "0.5/0.25"}));
    EXPECT_EQ(on_source.size(), 16u);
    EXPECT_EQ(weights(file, {"--seed", source == "flat" ? "4" : "0", "--normalize", "0.5/0.25"}), on_source) << source;
  }
}

TEST_F(DataCommands, TrainToTheSameBitsOnAFolderAndOnItsEncodedFileAndResumeOneOnTheOther) {
  for (int i = 0; i < 30; ++i) {
    const auto picture = gradient(i % 5 == 0 ? 1 : 3, 20 + i, 50 - i, 5 * i);
    const std::string name = fmt::format("in/{}/{}/{}", i < 24 ? "train" : "val", i % 2 == 0 ? "cat" : "dog", i);
    folder_.write(name + ".jpg", tutti::testing_support::turned(tutti::testing_support::jpeg_of(picture), i % 8 + 1));
  }
  const ChildResult made = data({"convert", path("in"), path("set.h5"), "--encoded", "--shard-size", "32KiB"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, mentions("set.h5: 24 training and 6 test images, "));
  EXPECT_THAT(made.out, mentions("HDF5 files: keep them in one folder"));
  const Words options{"--image-size", "16", "--augment", "resized-crop", "--normalize", "0.5/0.25"};
  const std::string on_folder = weights(path("in"), options);
  EXPECT_EQ(on_folder.size(), 16u);
  EXPECT_EQ(weights(path("set.h5"), options), on_folder);
  for (const auto& [first, second] : {std::pair{"in", "set.h5"}, std::pair{"set.h5", "in"}}) {
    const std::string out = path(std::string("run-on-") + first);
    weights(path(first), with(options, {"--out", out, "--epochs", "1", "--schedule-epochs", "2"}));
    EXPECT_EQ(weights(path(second), with(options, {"--out", out, "--resume"})), on_folder) << first;
  }
  const ChildResult on_auto = run_trainer({"--data", path("set.h5"), "--model", "mlp", "--image-size", "16",
                                           "--normalize", "auto", "--batch-size", "8", "--steps", "1"});
  EXPECT_EQ(on_auto.status, 0) << on_auto.err;
  const ChildResult info = data({"info", path("set.h5"), "--verify"});
  EXPECT_EQ(info.status, 0) << info.err;
  EXPECT_THAT(info.out, mentions("the bytes of 30 images; 30 of them decoded"));
  EXPECT_THAT(data({"info", path("in"), "--validation-ratio", "0.25", "--verify"}).out,
              mentions("the bytes of 24 images; 24 of them decoded"));
  EXPECT_EQ(data({"show", path("set.h5"), path("s.png"), "--image-size", "16", "--count", "5"}).status, 0);
}

TEST_F(DataCommands, ConvertWithOptionsForEncodedImagesOnlyWhereTheyApply) {
  const auto refusal = [&](const Words& more) {
    const ChildResult refused = data(with({"convert", "glyphs", path("set.h5")}, more));
    EXPECT_EQ(refused.status, 64) << refused.err;
    return refused.err;
  };
  EXPECT_THAT(refusal({"--short-side", "20"}), mentions("give --encoded, too"));
  EXPECT_THAT(refusal({"--encoded", "--image-size", "20"}), mentions("give --short-side"));
  EXPECT_THAT(refusal({"--encoded", "--quality", "20"}), mentions("--quality is for images that are resized"));
  EXPECT_THAT(refusal({"--encoded", "--shard-size", "4"}), mentions("must be such as 512MiB or 4GiB"));
  EXPECT_THAT(refusal({"--encoded"}), mentions("glyphs has none"));
}

// Starts a conversion, and sends SIGTERM once this file exists.
int stopped_conversion(const Words& words, const std::string& log, const std::function<bool()>& has_begun) {
  ChildProcess child(trainer_words(0, with({"data", "convert"}, words)), log);
  while (!has_begun()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ::kill(child.pid(), SIGTERM);
  return child.wait(120).value_or(-1);
}

TEST_F(DataCommands, ContinueAnEncodedConversionAfterSigtermAndLeaveNothingOfAnother) {
  const Bytes slow_to_decode = png_of(gradient(1, 400, 400));
  std::vector<tutti::testing_support::TarEntry> entries;
  for (int i = 0; i < 2000; ++i) {
    entries.push_back({fmt::format("{}.png", i), slow_to_decode});
    entries.push_back({fmt::format("{}.cls", i), {static_cast<std::uint8_t>('0' + i % 10)}});
  }
  folder_.write("t.tar", tutti::testing_support::tar_of(entries));
  const Words convert{path("t.tar"), path("set.h5"), "--encoded"};
  const auto has_begun = [&] { return std::filesystem::exists(path("set.h5.partial/files-00000")); };
  EXPECT_EQ(stopped_conversion(convert, path("log"), has_begun), 75);
  EXPECT_THAT(read_text(path("log")), mentions("stopped by SIGTERM; run the same command again to continue"));
  EXPECT_FALSE(std::filesystem::exists(path("set.h5")));
  const ChildResult rest = data(with({"convert"}, convert));
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.err, mentions("continuing after the first "));
  EXPECT_THAT(rest.out, mentions("set.h5: 2000 training and 0 test images"));
  EXPECT_EQ(data({"convert", path("t.tar"), path("whole.h5"), "--encoded"}).status, 0);
  EXPECT_TRUE(read_text(path("whole.h5")) == read_text(path("set.h5")));

  std::filesystem::create_directory(path("plain"));
  const auto is_writing = [&] { return !std::filesystem::is_empty(path("plain")); };
  const Words large{"synthetic:4000x1x8x8:2", path("plain/set.h5"), "--image-size", "512"};
  EXPECT_EQ(stopped_conversion(large, path("log"), is_writing), 75);
  EXPECT_THAT(read_text(path("log")), mentions("stopped by SIGTERM; nothing is written"));
  EXPECT_TRUE(std::filesystem::is_empty(path("plain")));
}

TEST_F(DataCommands, ConvertOnAnyNumberOfThreadsAndRanksToTheSameBytes) {
  const Words words{"convert", "synthetic:900x1x9x9:3"};
  const ChildResult one = data(with(words, {path("1.h5"), "--threads", "1", "--progress", "always"}));
  EXPECT_THAT(one, ends(0, "900 of 990 images, 90 %, "));
  EXPECT_THAT(one.out, mentions("1.h5: 900 training and 90 test images, 0.1 MiB, in ", " on 1 thread\n"));
  EXPECT_THAT(run_trainer(2, with({"data"}, with(words, {path("n.h5"), "--threads", "5"}))), ends(0));
  EXPECT_TRUE(read_text(path("1.h5")) == read_text(path("n.h5")));
  EXPECT_THAT(data(with(words, {path("1.h5")})), ends(64, "1.h5' exists"));
}

TEST_F(DataCommands, TurnPhotosUprightUnlessExifIsOff) {
  for (const char* name : {"in/a/1.jpg", "in/b/1.jpg"}) {
    folder_.write(name, tutti::testing_support::turned(tutti::testing_support::jpeg_of(gradient(3, 8, 16)), 6));
  }
  EXPECT_THAT(data({"info", path("in")}).out, mentions("2 images of 3x16x8, "));
  EXPECT_THAT(data({"info", path("in"), "--exif", "off"}).out, mentions("2 images of 3x8x16, "));
  EXPECT_EQ(data({"convert", path("in"), path("in.h5"), "--exif", "off"}).status, 0);
  EXPECT_THAT(data({"info", path("in.h5")}).out, mentions("2 images of 3x8x16, "));
  EXPECT_THAT(data({"info", path("in"), "--exif", "maybe"}), ends(64, "--exif maybe: must be one of on, off"));
}

TEST_F(DataCommands, ComputeTheStatisticsOfAFolderInCifarFormatFromItsImages) {
  folder_.write("black/data_batch_1.bin", Bytes(4 * 3073, 0));
  const std::string expected = "mean       0.0000 0.0000 0.0000\ndeviation  0.0000 0.0000 0.0000\n";
  EXPECT_THAT(data({"info", path("black")}).out, mentions(expected));
  EXPECT_EQ(data({"convert", path("black"), path("black.h5")}).status, 0);
  EXPECT_THAT(data({"info", path("black.h5")}).out, mentions(expected));
}

TEST_F(DataCommands, RefuseATestLabelThatNoTrainingSampleHasAndWarnOfEmptyClasses) {
  folder_.write("idx/train-images-idx3-ubyte", idx_file({0x803, 4, 4, 4}, 64));
  folder_.write("idx/train-labels-idx1-ubyte", idx_labels({0, 3, 0, 3}));
  folder_.write("idx/t10k-images-idx3-ubyte", idx_file({0x803, 2, 4, 4}, 32));
  folder_.write("idx/t10k-labels-idx1-ubyte", idx_labels({3, 0}));
  const Words train{"--data", path("idx"), "--model", "mlp", "--epochs", "1", "--batch-size", "4"};
  const std::string warning = "2 of 4 classes have no training samples in idx: 1, 2; the network cannot learn them";
  EXPECT_THAT(run_trainer(train), ends(0, warning));
  EXPECT_THAT(run_trainer(with({"check"}, train)).out, mentions("warning: " + warning));

  folder_.write("idx/t10k-labels-idx1-ubyte", idx_labels({3, 254}));
  const std::string refusal =
      "t10k-labels-idx1-ubyte', label 1 (counted from 0): the test label is 254, which no sample";
  EXPECT_THAT(run_trainer(train), ends(65, refusal));
  const ChildResult checked = run_trainer(with({"check"}, train));
  EXPECT_THAT(checked, ends(1));
  EXPECT_THAT(checked.out, mentions(refusal));
}

// Above --resident-mib rows are read, and verified, one by one.
TEST_F(DataCommands, FindDamageOfAFileThatIsReadAsNeeded) {
  const std::string file = path("big.h5");
  ASSERT_EQ(data({"convert", "synthetic:2000x1x28x28:4", file}).status, 0);
  const Words as_needed{"--resident-mib", "1"};
  EXPECT_THAT(data(with({"info", file}, as_needed)).out, mentions("read lazily"));
  EXPECT_THAT(data(with({"convert", file, path("copy.h5")}, as_needed)), ends(0));
  EXPECT_TRUE(read_text(file) == read_text(path("copy.h5")));

  const Words trained{"--data", file, "--model", "mlp", "--steps", "1", "--verify-data", "--out", path("run")};
  ASSERT_THAT(run_trainer(trained), ends(0));

  std::string bytes = read_text(file);
  for (std::size_t at = 0; at < 4096; ++at) bytes[bytes.size() / 2 + at] ^= 1;
  folder_.write("big.h5", Bytes(bytes.begin(), bytes.end()));
  const std::string found = "big.h5' is damaged: row ";
  EXPECT_THAT(data(with({"convert", file, path("b2.h5")}, as_needed)), ends(65, found));
  EXPECT_FALSE(std::filesystem::exists(path("b2.h5")));
  const Words train{"--data", file, "--model", "mlp", "--epochs", "1"};
  EXPECT_THAT(run_trainer(2, with(train, as_needed)), ends(65, found));
  EXPECT_THAT(run_trainer(with(with(train, as_needed), {"--verify-data"})),
              ends(65, "the images and labels in /train have the digest"));
  EXPECT_EQ(data(with({"info", file, "--verify"}, as_needed)).status, 65);
  EXPECT_THAT(run_trainer(with({"eval", "--checkpoint", path("run"), "--on", "train"}, as_needed)), ends(65, found));
}

Bytes plain_png(int brightness) { return png_of({1, 16, 16, Bytes(256, static_cast<std::uint8_t>(brightness))}); }

// Images with another brightness in a file of the same length.
Bytes other_png(int brightness) {
  int other = brightness + 1;
  while (plain_png(other % 256).size() != plain_png(brightness).size()) ++other;
  return plain_png(other % 256);
}

TEST_F(DataCommands, CompareTheContentOfImageFilesWhenARunIsResumed) {
  for (int i = 0; i < 600; ++i) {
    folder_.write(fmt::format("in/train/{}/{}.png", i % 2, i), plain_png(i % 128));
    if (i < 20) folder_.write(fmt::format("in/test/{}/{}.png", i % 2, i), plain_png(i));
  }
  const Words train{"--data", path("in"), "--model", "mlp", "--out", path("run"), "--steps", "2"};
  const auto resume = [&](const Words& more) {
    return run_trainer(with(with(train, {"--resume", "--steps", "3"}), more));
  };
  ASSERT_EQ(run_trainer(train).status, 0);
  const ChildResult verified = resume({"--verify-data"});
  ASSERT_EQ(verified.status, 0) << verified.err;
  EXPECT_THAT(verified.err, mentions("the checkpoint has the digest of only 256 of them"));
  // All images replaced by others of the same name and size.
  for (int i = 0; i < 600; ++i) {
    folder_.write(fmt::format("in/train/{}/{}.png", i % 2, i), other_png(i % 128));
  }
  EXPECT_THAT(resume({}), ends(65, "the training images of --data " + path("in") + " have changed since",
                               "(256 files read: digest "));
  // One image, which may not be in the sample.
  for (int i = 0; i < 600; ++i) folder_.write(fmt::format("in/train/{}/{}.png", i % 2, i), plain_png(i % 128));
  folder_.write("in/train/1/301.png", other_png(301 % 128));
  EXPECT_THAT(resume({"--verify-data"}), ends(65, "(all files read: digest "));
  folder_.write("in/train/1/301.png", plain_png(301 % 128));
  EXPECT_EQ(resume({}).status, 0);
  folder_.write("in/test/1/3.png", other_png(3));
  EXPECT_THAT(resume({}),
              ends(65, "the images of the test set of --data " + path("in") + " have changed since the checkpoint"));
}

TEST_F(DataCommands, CompareTheTestSetWhenARunIsResumed) {
  folder_.write("idx/train-images-idx3-ubyte", idx_file({0x803, 4, 4, 4}, 64));
  folder_.write("idx/train-labels-idx1-ubyte", idx_labels({0, 1, 0, 1}));
  folder_.write("idx/t10k-images-idx3-ubyte", idx_file({0x803, 2, 4, 4}, 32));
  folder_.write("idx/t10k-labels-idx1-ubyte", idx_labels({1, 0}));
  const Words train{"--data", path("idx"), "--model", "mlp", "--out", path("run"), "--epochs"};
  const auto resume = [&] { return run_trainer(with(train, {"3", "--resume"})); };
  ASSERT_EQ(run_trainer(with(train, {"2"})).status, 0);
  folder_.write("idx/t10k-labels-idx1-ubyte", idx_labels({0, 1}));
  EXPECT_THAT(resume(), ends(65, "the test set of --data " + path("idx") + " has digest "));
  EXPECT_EQ(run_trainer(with(with({"check"}, train), {"3", "--resume"})).status, 1);
  std::filesystem::rename(path("idx"), path("away"));
  const ChildResult away = run_trainer({"--resume", "--out", path("run")});
  EXPECT_THAT(away, ends(74, "The checkpoint names that path: --data gives another"));
  std::filesystem::rename(path("away"), path("idx"));
  std::filesystem::remove(path("idx/t10k-labels-idx1-ubyte"));
  std::filesystem::remove(path("idx/t10k-images-idx3-ubyte"));
  EXPECT_THAT(resume(), ends(0, "the run had a test set up to the checkpoint "));
}

TEST_F(DataCommands, RefuseClassNamesThatAreNotUtf8AndShowThemEscaped) {
  const std::string latin = "caf\xe9";
  const std::string broken = "two\nlines";
  for (int i = 0; i < 8; ++i) {
    const Bytes image = png_of(gradient(1, 8, 8, 11 * i));
    folder_.write(fmt::format("latin/{}/{}.png", i % 2 == 0 ? "cat" : latin, i), image);
    folder_.write(fmt::format("broken/{}/{}.png", i % 2 == 0 ? "cat" : broken, i), image);
  }
  const Words train{"--data", path("latin"), "--model", "linear", "--steps", "1"};
  EXPECT_THAT(run_trainer(train), ends(65, "has the class 'caf\\xe9', and that name is not UTF-8: rename its folder"));
  const ChildResult checked = run_trainer(with({"check"}, train));
  EXPECT_THAT(checked, ends(1));
  EXPECT_THAT(checked.out, mentions("has the class 'caf\\xe9'"));
  EXPECT_EQ(data({"convert", path("latin"), path("latin.h5")}).status, 65);
  EXPECT_THAT(data({"convert", path("broken"), path("broken.h5")}), ends(65, "in its name 'two\\x0alines'; rename it"));
}

TEST_F(DataCommands, ConvertOnlyToNamesOfHdf5Files) {
  for (const char* name : {"out.png", "out.txt", "out"}) {
    EXPECT_THAT(data({"convert", "synthetic:20x1x4x4:2", path(name)}),
                ends(64, "give a name that ends in .h5 or .hdf5"));
    EXPECT_FALSE(std::filesystem::exists(path(name)));
  }
  EXPECT_EQ(data({"convert", "synthetic:20x1x4x4:2", path("out.hdf5")}).status, 0);
}

TEST_F(DataCommands, ConvertNothingThatTheDiskCannotHold) {
  EXPECT_THAT(data({"convert", "synthetic:200000x1x8x8:2", path("out.h5"), "--image-size", "65536"}),
              ends(73, "out.h5' would take 880000.0 GiB, and "));
  EXPECT_FALSE(std::filesystem::exists(path("out.h5")));
  folder_.write("in/a/1.jpg", {});
  folder_.write("in/b/1.jpg", {});
  for (const char* name : {"in/a/1.jpg", "in/b/1.jpg"}) {
    std::filesystem::resize_file(path(name), std::uintmax_t{7} << 40);  // without using the disk
  }
  const ChildResult encoded = data({"convert", path("in"), path("out.h5"), "--encoded"});
  EXPECT_EQ(encoded.status, 73) << encoded.err;
  EXPECT_THAT(encoded.err, mentions("out.h5' would take 14336.0 GiB, and "));
  EXPECT_FALSE(std::filesystem::exists(path("out.h5.partial/files-00000")));
}

TEST_F(DataCommands, ShowASheetOfTheImagesThatTrainingGets) {
  const std::string source = "synthetic:40x1x112x112:4";
  const Words options{"--augment", "pad-crop-flip", "--seed", "5", "--batch-size", "8", "--parts", "3"};
  for (const Words& when : {Words{"--epoch", "2"}, Words{"--step", "6"}}) {
    const ChildResult shown = data(with(with({"show", source, path("sheets/a/s.png"), "--count", "7"}, options), when));
    ASSERT_EQ(shown.status, 73) << "there is no such folder yet: " << shown.err;
    std::filesystem::create_directories(path("sheets/a"));
    const ChildResult again = data(with(with({"show", source, path("sheets/a/s.png"), "--count", "7"}, options), when));
    ASSERT_EQ(again.status, 0) << again.err;
    EXPECT_THAT(again.out, mentions("s.png: 7 of the 8 images of step 6 (epoch 2) of " + source + ", 112 x 112\n"));
    EXPECT_EQ(count(again.out, "\n  1 "), 7) << "all in the first row: " << again.out;
    const OwnedData owned = open_named(source);
    const auto backend = make_cpu_backend();
    const auto stream = backend->make_stream();
    LoaderPlan plan;
    plan.batch_size = 8;
    plan.num_parts = 3;
    plan.parts = {0, 3};
    plan.order.seed = plan.recipe.seed = 5;
    plan.recipe.augment = Crop::pad_crop_flip;
    BatchLoader loader(*owned.pair.train, *backend, plan);
    loader.seek(1, 0);
    std::vector<float> expected;
    for (const Batch& batch : loader.next(*stream).batches) {
      const auto values = host_f32(batch.images);
      expected.insert(expected.end(), values.begin(), values.end());
    }

    const OwnedData sheet = open_named(path("sheets"));
    const Shape shape = sheet.pair.train->info().image;
    const auto pixels = contents_of(*sheet.pair.train).images;
    for (std::int64_t i = 0; i < 7; ++i) {
      const std::int64_t left = 10 + i * (112 + 10);
      int differing = 0;
      for (std::int64_t at = 0; at < 112 * 112; ++at) {
        const auto place = static_cast<std::size_t>((10 + at / 112) * shape[2] + left + at % 112);
        differing += pixels[place] != std::lround(expected[static_cast<std::size_t>(i * 112 * 112 + at)] * 255);
      }
      EXPECT_EQ(differing, 0) << "image " << i;
    }
    std::filesystem::remove_all(path("sheets"));
  }
}

TEST_F(DataCommands, ShowOriginalsAndNormalizedValuesAndClassNames) {
  for (int i = 0; i < 6; ++i) {
    folder_.write(fmt::format("in/{}/{}.png", i % 2 == 0 ? "cat" : "dog", i), png_of(gradient(3, 60 + i, 90, 11 * i)));
  }
  const ChildResult shown = data({"show", path("in"), path("s.png"), "--image-size", "64", "--augment", "resized-crop",
                                  "--normalize", "0.5/0.25", "--beside"});
  EXPECT_THAT(shown, ends(0));
  EXPECT_THAT(shown.out, mentions("s.png: 6 of the 6 images of step 1 (epoch 1) of in, 64 x 64 enlarged 2 times; "
                                  "normalized values of -3 to 3 from black to white\n",
                                  "  2      3          0  cat\n"));
}

TEST_F(DataCommands, RefuseToShowWhatCannotBeShown) {
  EXPECT_THAT(data({"show", "glyphs", path("s.jpg")}), ends(64, "give a name that ends in .png"));
  EXPECT_THAT(data({"show", "synthetic:9x2x4x4:2", path("s.png")}), ends(64, "have 2 channels"));
  EXPECT_EQ(data({"show", "glyphs", path("s.png"), "--augment", "crop"}).status, 64);
  EXPECT_EQ(data({"show", "glyphs", path("s.png"), "--step", "3", "--epoch", "2"}).status, 64);
  EXPECT_EQ(data({"show", "glyphs", path("s.png"), "--batch-size", "0"}).status, 64);
  EXPECT_EQ(data({"show", "synthetic:9x1x4x4:2", path("s.png"), "--last-batch", "discard", "--step", "3"}).status, 64);
}

// A folder of a data set may have this name.
TEST_F(DataCommands, AndAllOthersEscapeControlCharactersInNames) {
  const std::string hostile = "=esc\x1b[31m\xC2\x9B";
  const std::string folder = "set\x1b[31m";
  for (const std::string& name : {hostile, std::string("plain")}) {
    for (int i = 0; i < 4; ++i)
      folder_.write(fmt::format("{}/{}/{}.png", folder, name, i), png_of(gradient(1, 8, 8, 11 * i)));
  }
  const std::string set = path(folder);
  const ChildResult trained =
      run_trainer(words_of("--model linear --epochs 1 --batch-size 4 --threads 1 "
                           "--validation-ratio 0.5 --out " +
                           path("net") + " --data " + set));
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string of = " --checkpoint " + path("net");
  const auto expect_plain = [](const std::string& command) {
    const ChildResult result = run_trainer(words_of(command));
    for (const std::string& text : {result.out, result.err}) {
      EXPECT_EQ(text.find_first_of("\x1b\x9b"), text.npos) << command << ": " << text;
    }
    EXPECT_THAT(result.out + result.err, mentions("esc\\x1b[31m")) << command;
  };
  for (const char* command : {"eval --classes", "predict", "predict --csv-safe --csv -"}) expect_plain(command + of);
  expect_plain("inspect " + path("net"));
  expect_plain("data info " + set);
  expect_plain("data show " + set + " " + path("sheet.png"));
  ASSERT_EQ(run_trainer(words_of("predict --csv " + path("raw.csv") + of)).status, 0);
  ASSERT_EQ(run_trainer(words_of("predict --csv-safe --csv " + path("safe.csv") + of)).status, 0);
  EXPECT_THAT(read_text(path("raw.csv")), mentions("," + hostile + ","));
  EXPECT_THAT(read_text(path("safe.csv")), mentions(",'=esc\\x1b[31m\\xc2\\x9b,"));
  EXPECT_EQ(run_trainer(words_of("predict --csv-safe" + of)).status, 64);
  folder_.write(folder + "/" + hostile + "/bad.png", Bytes{'n', 'o'});
  expect_plain("--model linear --epochs 1 --skip-bad-images --data " + set);
  expect_plain("--model linear --epochs 1 --data " + set);
}

}  // namespace
}  // namespace tutti::test
