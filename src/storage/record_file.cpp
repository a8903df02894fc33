#include "tutti/storage/record_file.hpp"

#include "tutti/base/crc32c.hpp"
#include "tutti/base/uninterrupted.hpp"

#include "saving.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace tutti {
namespace {

template <class Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>((number >> (8 * i)) & 0xFF);
  return bytes;
}

std::string masked_sum(std::string_view bytes) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return little_endian((crc >> 15 | crc << 17) + 0xA282EAD8u);
}

}  // namespace

RecordFile::RecordFile(const std::string& path)
    : path_(path), descriptor_(uninterrupted([&] {
        return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
      })) {
  if (!descriptor_) fail_saving(path_, "opening", errno);
}

void RecordFile::append(std::string_view record) {
  const std::string length = little_endian(std::uint64_t{record.size()});
  const std::string whole = length + masked_sum(length) + std::string(record) + masked_sum(record);
  const off_t end = ::lseek(descriptor_.get(), 0, SEEK_END);
  if (end < 0) fail_saving(path_, "seeking", errno);
  if (write_all(descriptor_.get(), std::as_bytes(std::span(whole))).empty()) return;
  const int error = errno;
  // Readers come no further than a record that is cut short.
  if (uninterrupted([&] { return ::ftruncate(descriptor_.get(), end); }) != 0) {
    fail_saving(path_, "taking back a record that was cut short", errno);
  }
  fail_saving(path_, "writing", error);
}

}  // namespace tutti
