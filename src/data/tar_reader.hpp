#pragma once
// The files of a tar archive, raw or gzip-compressed, one after another: the headers that POSIX calls ustar, and their
// elder brothers. Whatever is neither a file nor a folder, a path that leads out of the archive, a damaged header and
// an archive that ends early are refused by an input error that names the place. Extensions (long names, times) are
// passed by: a path is what its header says.

#include "gz_file.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace tutti {

class TarReader {
 public:
  // Throws an io error when the file cannot be opened.
  explicit TarReader(const std::filesystem::path& path);

  struct Member {
    std::string path;  // with slashes, relative, and without ".."
    std::int64_t bytes = 0;
  };
  // The next file; nothing when the archive ends. What was not read of the one before is passed by.
  std::optional<Member> next();
  // Fills as much of the span as there is left of this file; returns how much.
  std::size_t read_some(std::span<std::uint8_t> bytes);

 private:
  void pass_by_the_rest();

  GzFile file_;
  std::int64_t left_ = 0;     // of the content of this member
  std::int64_t padding_ = 0;  // behind it
};

}  // namespace tutti
