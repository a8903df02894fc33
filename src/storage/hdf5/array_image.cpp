#include "tutti/base/error.hpp"
#include "tutti/storage/array_file.hpp"

#include "check.hpp"
#include "handles.hpp"
#include "new_file.hpp"

#include <new>
#include <utility>

namespace tutti {
namespace {

using namespace hdf5;

constexpr std::size_t kGrowthBytes = std::size_t{1} << 20;
constexpr std::size_t kLengthAt = 40;  // the file's end in a superblock of version 0, little-endian

// The room that HDF5 builds a file in: ours, so that nothing has to be copied out of it in the end, and nothing new
// asked of the system where an earlier image has left enough. What it holds before does not matter.
using Room = std::vector<std::byte>;

void* grow(void* room, std::size_t bytes) {
  Room& memory = *static_cast<Room*>(room);
  try {
    if (bytes > memory.size()) memory.resize(bytes);
    return memory.data();
  } catch (const std::bad_alloc&) {
    return nullptr;  // HDF5 tells of it
  }
}

H5FD_file_image_callbacks_t building_in(Room& room) {
  using Purpose = H5FD_file_image_op_t;
  return {.image_malloc = [](std::size_t bytes, Purpose, void* own) { return grow(own, bytes); },
          .image_memcpy = nullptr,
          .image_realloc = [](void*, std::size_t bytes, Purpose, void* own) { return grow(own, bytes); },
          .image_free = [](void*, Purpose, void*) -> herr_t { return 0; },
          .udata_copy = [](void* own) { return own; },
          .udata_free = [](void*) -> herr_t { return 0; },
          .udata = &room};
}

FileHandle create_in(Room& room) {
  silence_traces();
  const PropertiesHandle access(check(H5Pcreate(H5P_FILE_ACCESS)));
  check(H5Pset_fapl_core(access.get(), kGrowthBytes, /*backing_store=*/false));
  H5FD_file_image_callbacks_t callbacks = building_in(room);
  check(H5Pset_file_image_callbacks(access.get(), &callbacks));
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST));
  return FileHandle(check(H5Fcreate(new_image_name().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
}

}  // namespace

class ArrayImage::File {
 public:
  explicit File(Room room) : room_(std::move(room)), file_(create_in(room_)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;

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
    const hid_t bytes = check(hid_t{H5Fget_file_image(file.get(), nullptr, 0)});
    check(H5Fclose(file.release()));
    room_.resize(static_cast<std::size_t>(bytes));
    // Closing has given back what is unused at the end; the image keeps it, and says so.
    for (std::size_t i = 0; i < sizeof(bytes); ++i) room_.at(kLengthAt + i) = static_cast<std::byte>(bytes >> (8 * i));
    return {.bytes = std::move(room_), .floats = file_.floats()};
  }

 private:
  Room room_;
  NewFile file_;
};

ArrayImage::ArrayImage(std::vector<std::byte> room) {
  const auto turn = take_turn();
  file_ = std::make_unique<File>(std::move(room));
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
