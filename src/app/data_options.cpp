#include "data_options.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>

namespace tutti {

bool concerns_data(const RunOption& option) {
  return option.name == "test-data" || option.name == "validation-ratio" || option.name == "skip-bad-images" ||
         option.name == "exif" || option.name == "seed" || option.name == "resident-mib";
}

bool concerns_convert(const RunOption& option) {
  return concerns_data(option) || option.name == "progress" || option.name == "quiet" || option.name == "image-size";
}

// What decides on the images of a step.
bool concerns_show(const RunOption& option) {
  return option.name != "data" &&
         (option.group == "Data" || option.name == "batch-size" || option.name == "parts" || option.name == "seed");
}

void add_source_word(CLI::App& app, Invocation& invocation) {
  app.add_option("source", invocation.run.data, "the data set, as --data of train names it")->required();
}

void add_info_words(CLI::App& app, Invocation& invocation) {
  add_source_word(app, invocation);
  app.add_flag("--verify", invocation.run.verify_data,
               "read all image headers and decode a sample of the images; of an HDF5 file, read all")
      ->group("Data");
}

void add_convert_words(CLI::App& app, Invocation& invocation) {
  add_source_word(app, invocation);
  app.add_option("target", invocation.target, "the file to write, DST.h5 (or .hdf5)")->required();
  app.add_option("--threads", invocation.threads, "that read and decode; 0: one per core; never changes a byte")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str()
      ->group("Data");
}

void add_show_options(CLI::App& app, Invocation& invocation) {
  ShowRequest& show = invocation.show;
  CLI::Range positive(std::int64_t{1}, std::int64_t{1} << 30);
  positive.description("");
  add_source_word(app, invocation);
  app.add_option("target", invocation.target, "the picture to write, OUT.png")->required();
  app.add_option("--count", show.count, "images, at most as many as the step has")
      ->check(positive)
      ->capture_default_str()
      ->group("Picture");
  app.add_flag("--beside", show.beside, "each image's original to the left of it")->group("Picture");
  auto* epoch = app.add_option("--epoch", show.epoch, "whose first step is shown")
                    ->check(positive)
                    ->capture_default_str()
                    ->group("Picture");
  app.add_option("--step", show.step, "the step to show, counted over all epochs as in metrics.jsonl")
      ->check(positive)
      ->excludes(epoch)
      ->group("Picture");
}

}  // namespace tutti
