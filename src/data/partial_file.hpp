#pragma once
// A data file of encoded images that is being written: a folder beside it, to which any number of processes append one
// after another. What they lose is the work since the last checkpoint.

#include "tutti/base/unique_handle.hpp"
#include "tutti/data/dataset.hpp"
#include "tutti/storage/folder_lock.hpp"

#include "encoded_file.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// An image file that is ready to be appended.
struct EncodedEntry {
  std::string name{};
  std::int32_t label = 0;
  std::vector<std::byte> bytes{};
  std::array<std::int32_t, kShapeNumbers> shape{};
  std::array<double, 3> means{};    // of the pixels of each channel
  std::array<double, 3> squares{};  // means of their squares
  bool encoded_again = false;
};

// How far the conversion is. `at` and `byte` are a position in the source, which only that interprets.
struct ConversionPoint {
  std::size_t set = 0;  // 0: training, 1: test
  std::int64_t at = 0;
  std::int64_t byte = 0;
};

// The images that are in the file, in order.
struct EncodedIndex {
  std::vector<std::uint8_t> names{};  // each followed by a zero byte
  std::vector<std::int32_t> labels{};
  std::vector<std::int64_t> ends{};
  std::vector<std::int32_t> checksums{};
  std::vector<std::int32_t> shapes{};
  std::vector<std::int64_t> shards{0};  // the first sample of each shard
};

class PartialFile {
 public:
  // Continues what earlier processes have begun with an equal plan, which says what is converted and how. Throws an
  // input error if they had another plan, or if another process is writing.
  PartialFile(const std::string& target, const nlohmann::json& plan, std::int64_t shard_bytes);

  const ConversionPoint& point() const { return point_; }
  const EncodedIndex& index(std::size_t set) const { return state_.indices[set]; }
  const std::vector<std::string>& classes() const { return state_.classes; }
  std::int64_t skipped() const { return state_.skipped; }
  const std::string& first_problem() const { return state_.first_problem; }
  std::int64_t encoded_again() const { return state_.encoded_again; }
  std::int64_t files() const { return std::ssize(state_.indices[0].shards); }
  std::int64_t bytes_since_checkpoint() const { return state_.bytes - saved_.bytes; }
  std::int64_t bytes() const { return state_.bytes; }  // of image files

  // The label of a class. If no class has this name, a new one if it `adds` it, else nothing.
  std::optional<std::int32_t> label_of(const std::string& class_name, bool adds);
  void append(std::size_t set, const EncodedEntry& entry);
  void skip(const std::string& problem);
  // Flushes what was appended. The next process goes on from `point`.
  void checkpoint(const ConversionPoint& point);
  // Writes the target, and removes the folder. `new_labels` maps the labels to those of `info`.
  void finish(DatasetInfo info, const std::vector<std::int32_t>& new_labels);

 private:
  struct State {
    std::array<EncodedIndex, 2> indices{};
    std::vector<std::string> classes{};
    std::array<double, 3> color_means{}, color_squares{};  // sums over the training images in color, and in gray
    double gray_means = 0, gray_squares = 0;
    std::int64_t bytes = 0;    // of image files
    std::int64_t payload = 0;  // of the last shard's file; 0: it does not exist yet
    std::int64_t skipped = 0;
    std::int64_t encoded_again = 0;
    std::string first_problem{};
  };
  // Of the state at the last checkpoint.
  struct Saved {
    std::array<std::array<std::size_t, 2>, 2> counts{};  // of samples and of bytes of names, by set
    std::size_t classes = 0;
    std::int64_t bytes = 0;
    std::size_t journal = 0;  // length
  };

  std::string file(std::int64_t shard) const;
  void begin_shard(std::size_t set, std::int64_t bytes);
  void open_last();
  void replay();
  nlohmann::json record(const ConversionPoint& point) const;
  void restore(const nlohmann::json& record);
  void note_saved(std::size_t journal);
  std::int64_t begin_of(std::size_t set, std::int64_t shard) const;
  std::int64_t samples_before(std::size_t set, std::int64_t shard) const;
  std::string digest_of(std::int64_t shard) const;
  bool is_finished(std::int64_t shard) const;
  void finish_shard(std::int64_t shard, const DatasetInfo& info, const std::vector<std::int32_t>& new_labels) const;
  ChannelStatistics statistics() const;

  std::string target_;
  std::string folder_;
  std::int64_t shard_bytes_;
  std::optional<FolderLock> lock_;  // until finish()
  ConversionPoint point_;
  State state_;
  Saved saved_;
  std::map<std::string, std::int32_t> label_of_;
  Descriptor file_;  // the last shard; empty: not open
  Descriptor journal_;
};

}  // namespace tutti
