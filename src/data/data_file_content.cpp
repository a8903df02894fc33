#include "data_file_content.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace tutti {

void refuse_broken_name(const std::string& name, const std::string& of) {
  const bool breaks = name.find_first_of(std::string_view("\n\0", 2)) != std::string::npos;
  if (!breaks && is_utf8(name)) return;
  throw Error(ErrorSource::input,
              fmt::format("a class of {} has {} in its name '{}'; rename it", of,
                          breaks ? "a line break or a zero byte" : "bytes that are not UTF-8", printable(name)));
}

void refuse_broken_names(const DatasetInfo& info) {
  for (const std::string& name : info.class_names) refuse_broken_name(name, info.name);
}

void refuse_scarce_disk(const std::string& path, std::int64_t bytes, const char* remedy) {
  constexpr double kGibi = std::int64_t{1} << 30;
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const auto available = std::filesystem::space(folder.empty() ? "." : folder, unknown).available;
  if (unknown || available >= static_cast<std::uintmax_t>(bytes)) return;
  throw Error(ErrorSource::save,
              fmt::format("'{}' would take {:.1f} GiB, and {:.1f} GiB are free there: {}", path,
                          static_cast<double>(bytes) / kGibi, static_cast<double>(available) / kGibi, remedy));
}

void write_description(ArrayWriter& file, const DatasetInfo& info) {
  file.add_text("/name", info.name);
  file.add_text("/class_names", fmt::format("{}", fmt::join(info.class_names, "\n")));
  file.add("/classes", Shape{1}, std::array<std::int32_t, 1>{info.classes});
}

DataFileContent::DataFileContent(const std::string& path, const char* format)
    : file_(path), bytes_(static_cast<std::int64_t>(std::filesystem::file_size(path))) {
  if (!file_.contains("/format") || file_.read_text("/format") != format) {
    refuse(fmt::format("its format is not '{}'", format));
  }
  info_.name = file_.read_text("/name");
  info_.classes = read_all<std::int32_t>("/classes", 1).front();
  info_.class_names = lines_of(file_.read_text("/class_names"));
  if (info_.classes < 1 || (!info_.class_names.empty() && std::ssize(info_.class_names) != info_.classes)) {
    refuse(fmt::format("it has {} classes, but {} class names", info_.classes, info_.class_names.size()));
  }
}

void DataFileContent::refuse(const std::string& reason) const {
  throw Error(ErrorSource::input,
              fmt::format("'{}' cannot be read: {}; recreate it from its source with {} data convert", file_.path(),
                          reason, program_call()));
}

std::int64_t DataFileContent::length_of(const std::string& array) const {
  const Shape shape = file_.shape(array);
  if (shape.ndim() != 1 || shape[0] > bytes_) refuse(fmt::format("{} is {}", array, shape.text()));
  return shape[0];
}

std::vector<std::string> DataFileContent::read_names(const std::string& array, std::int64_t samples) const {
  std::vector<std::string> names;
  const auto bytes = read_all<std::uint8_t>(array, length_of(array));
  const auto refuse_count = [&] { refuse(fmt::format("{} does not have {} names", array, samples)); };
  for (auto begin = bytes.begin(); begin != bytes.end();) {
    const auto end = std::find(begin, bytes.end(), 0);
    if (end == bytes.end() || std::ssize(names) == samples) refuse_count();
    names.emplace_back(begin, end);
    begin = end + 1;
  }
  if (std::ssize(names) != samples) refuse_count();
  return names;
}

void DataFileContent::read_statistics(std::int64_t channels) {
  info_.statistics.mean = read_all<double>("/mean", channels);
  info_.statistics.deviation = read_all<double>("/deviation", channels);
}

}  // namespace tutti
