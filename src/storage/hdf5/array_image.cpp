#include "tutti/base/error.hpp"
#include "tutti/storage/array_file.hpp"

#include "check.hpp"
#include "element.hpp"
#include "handles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

using namespace hdf5;

constexpr std::size_t kGrowthBytes = std::size_t{1} << 20;

// HDF5 takes files in memory of one name for the same file, so every image gets its own.
std::string fresh_name() {
  static std::atomic<unsigned> images{0};
  return fmt::format("image {} in memory", images++);
}

FileHandle create_in_memory() {
  silence_traces();
  const PropertiesHandle access(check(H5Pcreate(H5P_FILE_ACCESS)));
  check(H5Pset_fapl_core(access.get(), kGrowthBytes, /*backing_store=*/false));
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST));
  return FileHandle(check(H5Fcreate(fresh_name().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
}

PropertiesHandle with_groups_on_the_way() {
  PropertiesHandle properties(check(H5Pcreate(H5P_LINK_CREATE)));
  check(H5Pset_create_intermediate_group(properties.get(), 1));
  check(H5Pset_char_encoding(properties.get(), H5T_CSET_UTF8));
  return properties;
}

// Without times, so that equal content makes equal bytes.
PropertiesHandle contiguous_without_times() {
  PropertiesHandle properties(check(H5Pcreate(H5P_DATASET_CREATE)));
  check(H5Pset_layout(properties.get(), H5D_CONTIGUOUS));
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

class ArrayImage::File {
 public:
  void add(const std::string& name, hid_t stored, hid_t native, const SpaceHandle& space, const void* data,
           bool empty) {
    refuse_ambiguous(name);
    if (!file_) throw Error(ErrorSource::internal, fmt::format("'{}' is added to a finished image", name));
    const DatasetHandle dataset(
        check(H5Dcreate2(file_.get(), name.c_str(), stored, space.get(), links_.get(), layout_.get(), H5P_DEFAULT)));
    if (!empty) check(H5Dwrite(dataset.get(), native, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
  }

  template <class T>
  void add_values(const std::string& name, const Shape& shape, std::span<const T> values) {
    if (static_cast<std::int64_t>(values.size()) != shape.elements()) {
      throw Error(ErrorSource::internal,
                  fmt::format("'{}' of shape {} is given {} values", name, shape.text(), values.size()));
    }
    const Element element = element_of(T{});
    add(name, element.stored, element.native, space_of(shape), values.data(), values.empty());
  }

  std::vector<std::byte> finish() {
    if (!file_) throw Error(ErrorSource::internal, "an image is finished twice");
    check(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL));
    std::vector<std::byte> bytes(static_cast<std::size_t>(check(hid_t{H5Fget_file_image(file_.get(), nullptr, 0)})));
    check(hid_t{H5Fget_file_image(file_.get(), bytes.data(), bytes.size())});
    check(H5Fclose(file_.release()));
    return bytes;
  }

 private:
  FileHandle file_ = create_in_memory();
  PropertiesHandle links_ = with_groups_on_the_way();
  PropertiesHandle layout_ = contiguous_without_times();
};

ArrayImage::ArrayImage() : file_(std::make_unique<File>()) {}
ArrayImage::~ArrayImage() = default;
ArrayImage::ArrayImage(ArrayImage&&) noexcept = default;
ArrayImage& ArrayImage::operator=(ArrayImage&&) noexcept = default;

void ArrayImage::add(const std::string& name, const Shape& shape, std::span<const float> values) {
  file_->add_values(name, shape, values);
}
void ArrayImage::add(const std::string& name, const Shape& shape, std::span<const double> values) {
  file_->add_values(name, shape, values);
}
void ArrayImage::add(const std::string& name, const Shape& shape, std::span<const std::uint8_t> values) {
  file_->add_values(name, shape, values);
}
void ArrayImage::add(const std::string& name, const Shape& shape, std::span<const std::int32_t> values) {
  file_->add_values(name, shape, values);
}
void ArrayImage::add(const std::string& name, const Shape& shape, std::span<const std::int64_t> values) {
  file_->add_values(name, shape, values);
}

void ArrayImage::add_text(const std::string& name, const std::string& text) {
  if (text.find('\0') != std::string::npos) {
    throw Error(ErrorSource::internal, fmt::format("the text '{}' holds a zero byte", name));
  }
  const TypeHandle type(check(H5Tcopy(H5T_C_S1)));
  check(H5Tset_size(type.get(), text.size() + 1));
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8));
  file_->add(name, type.get(), type.get(), space_of(Shape{}), text.c_str(), /*empty=*/false);
}

std::vector<std::byte> ArrayImage::finish() { return file_->finish(); }

}  // namespace tutti
