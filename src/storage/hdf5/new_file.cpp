#include "new_file.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <utility>

namespace tutti::hdf5 {
namespace {

PropertiesHandle with_groups_on_the_way() {
  PropertiesHandle properties(check(H5Pcreate(H5P_LINK_CREATE)));
  check(H5Pset_create_intermediate_group(properties.get(), 1));
  check(H5Pset_char_encoding(properties.get(), H5T_CSET_UTF8));
  return properties;
}

// Without times, so that equal content makes equal bytes.
PropertiesHandle layout_without_times() {
  PropertiesHandle properties(check(H5Pcreate(H5P_DATASET_CREATE)));
  check(H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER));
  check(H5Pset_obj_track_times(properties.get(), false));
  return properties;
}

SpaceHandle space_of(const Shape& shape) {
  if (shape.rank() == 0) return SpaceHandle(check(H5Screate(H5S_SCALAR)));
  std::array<hsize_t, Shape::kMaxRank> extents{};
  std::ranges::transform(shape.extents(), extents.begin(), [](std::int64_t e) { return static_cast<hsize_t>(e); });
  return SpaceHandle(check(H5Screate_simple(shape.rank(), extents.data(), nullptr)));
}

// HDF5 would skip empty and "." components silently, and the array would have another name than asked for.
void refuse_ambiguous(const std::string& name) {
  if (!name.starts_with('/') || name.find('\0') != std::string::npos) {
    throw Error(ErrorSource::internal, fmt::format("an array is called '{}'; names begin with '/'", name));
  }
  std::string_view rest = std::string_view(name).substr(1);
  while (true) {
    const std::string_view component = rest.substr(0, rest.find('/'));
    if (component.empty() || component == "." || component == "..") {
      throw Error(ErrorSource::internal, fmt::format("the array name '{}' has an empty or dotted component", name));
    }
    if (component.size() == rest.size()) return;
    rest.remove_prefix(component.size() + 1);
  }
}

}  // namespace

std::string new_image_name() {
  static std::atomic<unsigned> images{0};
  return fmt::format("image {} in memory", images++);
}

NewFile::NewFile(FileHandle file)
    : file_(std::move(file)), links_(with_groups_on_the_way()), layout_(layout_without_times()) {
  check(H5Pset_layout(layout_.get(), H5D_CONTIGUOUS));
}

DatasetHandle NewFile::make(const std::string& name, hid_t stored, const Shape& shape, hid_t layout) {
  refuse_ambiguous(name);
  if (!file_) throw Error(ErrorSource::internal, fmt::format("'{}' is added to a finished file", name));
  return DatasetHandle(
      check(H5Dcreate2(file_.get(), name.c_str(), stored, space_of(shape).get(), links_.get(), layout, H5P_DEFAULT)));
}

// HDF5 gives an array its place in the file when values are written, and none to an array without any.
void NewFile::add(const std::string& name, const Shape& shape, const Element& element, const void* values) {
  const DatasetHandle dataset = make(name, element.stored, shape, layout_.get());
  if (shape.elements() == 0) return;
  check(H5Dwrite(dataset.get(), element.native, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
  if (element.name != kFloatName) return;
  const haddr_t offset = H5Dget_offset(dataset.get());
  if (offset == HADDR_UNDEF) throw Error(ErrorSource::hdf5, fmt::format("'{}' has no place in its file", name));
  floats_.push_back({offset, static_cast<std::uint64_t>(shape.elements()) * element.bytes});
}

void NewFile::add_text(const std::string& name, const std::string& text) {
  if (text.find('\0') != std::string::npos) {
    throw Error(ErrorSource::internal, fmt::format("the text '{}' holds a zero byte", name));
  }
  const TypeHandle type(check(H5Tcopy(H5T_C_S1)));
  check(H5Tset_size(type.get(), text.size() + 1));
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8));
  const DatasetHandle dataset = make(name, type.get(), Shape{}, layout_.get());
  check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.c_str()));
}

DatasetHandle NewFile::add_rows(const std::string& name, const Shape& shape, std::int64_t rows_per_chunk) {
  const PropertiesHandle layout = layout_without_times();
  std::array<hsize_t, Shape::kMaxRank> chunk{};
  std::ranges::transform(shape.extents(), chunk.begin(), [](std::int64_t e) { return static_cast<hsize_t>(e); });
  chunk[0] = static_cast<hsize_t>(rows_per_chunk);
  check(H5Pset_chunk(layout.get(), shape.rank(), chunk.data()));
  return make(name, element_of(std::uint8_t{}).stored, shape, layout.get());
}

FileHandle NewFile::release() { return std::move(file_); }

}  // namespace tutti::hdf5
