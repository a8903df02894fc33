#include "tutti/base/crc32c.hpp"
#include "tutti/base/error.hpp"
#include "tutti/storage/array_file.hpp"

#include "check.hpp"
#include "handles.hpp"
#include "new_file.hpp"

#include <fmt/format.h>

#include <atomic>
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

}  // namespace

class ArrayImage::File {
 public:
  template <class T>
  void add_values(const std::string& name, const Shape& shape, std::span<const T> values) {
    const auto turn = take_turn();
    file_.add_values(name, shape, values);
  }
  void add_text(const std::string& name, const std::string& text) {
    const auto turn = take_turn();
    file_.add_text(name, text);
  }

  StoredImage finish() {
    const auto turn = take_turn();
    FileHandle file = file_.release();
    if (!file) throw Error(ErrorSource::internal, "an image is finished twice");
    check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
    std::vector<std::byte> bytes(static_cast<std::size_t>(check(hid_t{H5Fget_file_image(file.get(), nullptr, 0)})));
    check(hid_t{H5Fget_file_image(file.get(), bytes.data(), bytes.size())});
    check(H5Fclose(file.release()));
    StoredImage image{.bytes = std::move(bytes), .arrays = file_.arrays()};
    for (StoredArray& array : image.arrays) {
      array.crc32c =
          crc32c(std::span(image.bytes)
                     .subspan(static_cast<std::size_t>(array.offset), static_cast<std::size_t>(array.bytes)));
    }
    return image;
  }

 private:
  NewFile file_{create_in_memory()};
};

ArrayImage::ArrayImage() {
  const auto turn = take_turn();
  file_ = std::make_unique<File>();
}
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

void ArrayImage::add_text(const std::string& name, const std::string& text) { file_->add_text(name, text); }

StoredImage ArrayImage::finish() { return file_->finish(); }

}  // namespace tutti
