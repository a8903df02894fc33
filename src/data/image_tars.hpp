#pragma once
// Image files in tar archives, in WebDataset's layout: an image such as NAME.jpg and, beside it, NAME.cls with
// the number or name of its class. NAME ends at the first dot of the file's name. Other files are ignored. The archives
// are ustar, with GNU long names and pax headers, and are read once, from the first byte to the last.

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

struct TarSets {
  std::string name{};
  std::vector<std::string> train{};  // paths of archives
  std::vector<std::string> test{};
};

// The archives that data sets of these names are in; nothing if the first is no archive. A name is an archive, a folder
// with archives and neither images nor folders, whose test set are those that begin with test or val, or a pattern such
// as train-{000..146}.tar or train-*.tar. Throws input and io errors.
std::optional<TarSets> find_tars(const std::string& train, const std::string& test);

struct TarSample {
  std::string name;  // of the image in its archive
  std::string class_name;
  std::vector<std::byte> bytes;
  std::string problem;  // why it cannot be used; empty: it can
};

// Where a sample begins.
struct TarPosition {
  std::int64_t archive = 0;
  std::int64_t byte = 0;
};

class TarReader {
 public:
  explicit TarReader(std::vector<std::string> paths, TarPosition from = {}) : paths_(std::move(paths)), at_(from) {}

  // Nothing after the last sample. Throws an input error that names the archive if it is truncated or damaged.
  std::optional<TarSample> next();
  // That of the sample that next() returns next.
  TarPosition position() const { return member_ ? TarPosition{at_.archive, member_->begin} : at_; }

 private:
  struct Member {
    std::string name{};
    char type = '0';
    std::int64_t begin = 0;  // of its first header
    std::int64_t bytes = 0;
  };

  bool open_next();
  std::optional<Member> read_member();
  void apply_pax(const std::string& records, Member& member) const;
  std::vector<std::byte> read_bytes(std::int64_t bytes);
  std::vector<std::byte> read_content(const Member& member);
  void skip(const Member& member);
  void add(const Member& member, const std::string& ending, TarSample& sample);
  [[noreturn]] void refuse(std::int64_t byte, const std::string& reason) const;

  std::vector<std::string> paths_;
  TarPosition at_;
  std::unique_ptr<std::ifstream> file_;
  std::int64_t file_bytes_ = 0;
  std::optional<Member> member_;  // its header is read, its content is not
};

}  // namespace tutti
