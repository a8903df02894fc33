#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/seal.hpp"

#include "hdf5.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

using namespace hdf5;

constexpr std::int64_t kChunkBytes = std::int64_t{8} << 20;
constexpr std::size_t kGrowthBytes = std::size_t{1} << 20;
constexpr std::size_t kLengthAt = 40;  // offset of the end-of-file address in a version 0 superblock, little-endian

// The memory in which HDF5 builds a file. It is ours, so that the finished file need not be copied and the memory of an
// earlier file can be reused. Its previous contents do not matter.
using ByteBuffer = std::vector<std::byte>;

void* grow(void* buffer, std::size_t bytes) {
  ByteBuffer& memory = *static_cast<ByteBuffer*>(buffer);
  try {
    if (bytes > memory.size()) memory.resize(bytes);
    return memory.data();
  } catch (const std::bad_alloc&) {
    return nullptr;  // HDF5 reports it
  }
}

void allow_versions(const PropertiesHandle& access) {
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST));
}

FileHandle create(const std::string& name, const PropertiesHandle& access) {
  allow_versions(access);
  return FileHandle(check(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
}

FileHandle create_in(ByteBuffer& buffer) {
  using Purpose = H5FD_file_image_op_t;
  const PropertiesHandle access(check(H5Pcreate(H5P_FILE_ACCESS)));
  check(H5Pset_fapl_core(access.get(), kGrowthBytes, /*backing_store=*/false));
  H5FD_file_image_callbacks_t callbacks{
      .image_malloc = [](std::size_t bytes, Purpose, void* own) { return grow(own, bytes); },
      .image_memcpy = nullptr,
      .image_realloc = [](void*, std::size_t bytes, Purpose, void* own) { return grow(own, bytes); },
      .image_free = [](void*, Purpose, void*) -> herr_t { return 0; },
      .udata_copy = [](void* own) { return own; },
      .udata_free = [](void*) -> herr_t { return 0; },
      .udata = &buffer};
  check(H5Pset_file_image_callbacks(access.get(), &callbacks));
  return create(new_memory_file_name(), access);
}

PropertiesHandle create_intermediate_groups() {
  PropertiesHandle properties(check(H5Pcreate(H5P_LINK_CREATE)));
  check(H5Pset_create_intermediate_group(properties.get(), 1));
  check(H5Pset_char_encoding(properties.get(), H5T_CSET_UTF8));
  return properties;
}

// Turns off object timestamps, so that equal content gives equal bytes.
PropertiesHandle layout_without_times() {
  PropertiesHandle properties(check(H5Pcreate(H5P_DATASET_CREATE)));
  check(H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER));
  check(H5Pset_obj_track_times(properties.get(), false));
  return properties;
}

// HDF5 silently skips empty and "." components, so the array would get another name than requested.
void refuse_ambiguous(const std::string& name) {
  const std::string path = name + "/";
  const bool ambiguous = !name.starts_with('/') || name.find('\0') != std::string::npos ||
                         std::ranges::any_of(std::array{"//", "/./", "/../"}, [&](std::string_view empty) {
                           return path.find(empty) != std::string::npos;
                         });
  if (!ambiguous) return;
  throw Error(
      ErrorSource::internal,
      fmt::format("invalid array name '{}': names begin with '/' and have no empty or dotted components", name));
}

// An array that is being written row by row. Only whole chunks are written, so that HDF5 caches none of them.
struct RowStream {
  std::string name;
  Shape shape;
  std::int64_t row_bytes = shape.without_first().elements();
  std::int64_t chunk_rows = std::clamp(kChunkBytes / row_bytes, std::int64_t{1}, shape[0]);
  DatasetHandle dataset{};
  std::vector<std::uint8_t> waiting{};
  std::int64_t written = 0;

  void append(std::span<const std::uint8_t> rows) {
    while (!rows.empty()) {
      const std::size_t missing = static_cast<std::size_t>(chunk_rows * row_bytes) - waiting.size();
      const auto next = rows.first(std::min(missing, rows.size()));
      waiting.insert(waiting.end(), next.begin(), next.end());
      rows = rows.subspan(next.size());
      if (next.size() == missing) write();
    }
  }

  // Adds the file offsets of the chunks to `ranges`.
  void finish(std::vector<ByteRange>& ranges) {
    if (!waiting.empty()) write();
    if (written != shape[0]) {
      throw Error(ErrorSource::internal, fmt::format("'{}' of {} rows is given {}", name, shape[0], written));
    }
    const SpaceHandle space(check(H5Dget_space(dataset.get())));
    hsize_t chunks = 0;
    check(H5Dget_num_chunks(dataset.get(), space.get(), &chunks));
    std::array<hsize_t, Shape::kMaxDims> offset{};
    for (hsize_t chunk = 0; chunk < chunks; ++chunk) {
      unsigned filters = 0;
      haddr_t address = 0;
      hsize_t bytes = 0;
      check(H5Dget_chunk_info(dataset.get(), space.get(), chunk, offset.data(), &filters, &address, &bytes));
      ranges.push_back({address, bytes});
    }
  }

 private:
  void write() {
    const std::int64_t rows = static_cast<std::int64_t>(waiting.size()) / row_bytes;
    if (rows * row_bytes != static_cast<std::int64_t>(waiting.size()) || rows > shape[0] - written) {
      throw Error(ErrorSource::internal,
                  fmt::format("'{}' of {} rows is given more, or a piece of one", name, shape[0]));
    }
    const Shape block = shape.with_first(rows);
    const SpaceHandle to = rows_of(dataset, written, block);
    check(H5Dwrite(dataset.get(), H5T_NATIVE_UINT8, space_of(block).get(), to.get(), H5P_DEFAULT, waiting.data()));
    written += rows;
    waiting.clear();
  }
};

// The first bytes of an HDF5 file without arrays.
std::vector<std::byte> empty_head() {
  std::vector<std::byte> head = MemoryFileWriter().finish();
  std::uint64_t length = 0;  // without the seal
  std::memcpy(&length, head.data() + kLengthAt, sizeof length);
  head.resize(static_cast<std::size_t>(length));
  head.resize(static_cast<std::size_t>(RawFileWriter::kAlignment));
  return head;
}

// Makes the raw file begin with these bytes and have this length.
void begin_raw_file(const std::string& path, std::span<const std::byte> head, std::int64_t length) {
  const Descriptor file(retry_on_eintr([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC); }));
  if (!file) fail_saving(path, "opening", errno);
  if (!write_all(file.get(), head).empty()) fail_saving(path, "writing", errno);
  if (retry_on_eintr([&] { return ::ftruncate(file.get(), length); }) != 0) fail_saving(path, "truncating", errno);
}

void append_durably(const std::string& path, std::span<const std::byte> bytes) {
  const Descriptor file(retry_on_eintr([&] { return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC); }));
  if (!file) fail_saving(path, "opening", errno);
  if (!write_all(file.get(), bytes).empty()) fail_saving(path, "writing", errno);
  if (retry_on_eintr([&] { return ::fsync(file.get()); }) != 0) fail_saving(path, "flushing to the disk", errno);
}

}  // namespace

struct ArrayWriter::File {
  ByteBuffer buffer{};                // for a file in memory
  std::string path{};                 // of a file on the disk, as given by the caller
  std::optional<AtomicFile> whole{};  // a file on the disk
  FileHandle file{};
  PropertiesHandle links{};
  PropertiesHandle contiguous{};
  std::vector<ByteRange> uncovered{};  // ranges that the seal does not cover
  std::optional<RowStream> rows{};

  void begin(FileHandle created) {
    file = std::move(created);
    links = create_intermediate_groups();
    contiguous = layout_without_times();
    check(H5Pset_layout(contiguous.get(), H5D_CONTIGUOUS));
  }

  // Runs `action` with HDF5 locked. For a file on the disk, rethrows HDF5's errors as save errors.
  template <class Action>
  void writing(Action action) {
    const auto lock = lock_hdf5();
    try {
      action();
    } catch (const Error& error) {
      if (error.source() != ErrorSource::hdf5 || path.empty()) throw;
      throw Error(ErrorSource::save, fmt::format("cannot save '{}': HDF5: {}; check the space left on this file system "
                                                 "and your quota, or choose another folder",
                                                 path, error.what()));
    }
  }

  DatasetHandle make(const std::string& name, hid_t stored, const Shape& shape, const PropertiesHandle& layout) {
    refuse_ambiguous(name);
    if (!file) throw Error(ErrorSource::internal, fmt::format("'{}' is added to a finished file", name));
    return DatasetHandle(check(
        H5Dcreate2(file.get(), name.c_str(), stored, space_of(shape).get(), links.get(), layout.get(), H5P_DEFAULT)));
  }

  // Flushing reports errors that closing would not.
  void close() {
    check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
    check(H5Fclose(file.release()));
  }

  void finish_rows() {
    if (rows) rows->finish(uncovered);
    rows.reset();
  }
};

ArrayWriter::ArrayWriter() : file_(std::make_unique<File>()) {}
ArrayWriter::~ArrayWriter() = default;

// HDF5 allocates file space for an array when values are written, and none for an empty array.
template <class T>
void ArrayWriter::add_values(const std::string& name, const Shape& shape, std::span<const T> values) {
  if (static_cast<std::int64_t>(values.size()) != shape.elements()) {
    throw Error(ErrorSource::internal,
                fmt::format("'{}' of shape {} is given {} values", name, shape.text(), values.size()));
  }
  file_->writing([&] {
    const Element element = element_of(T{});
    const DatasetHandle dataset = file_->make(name, element.stored, shape, file_->contiguous);
    if (values.empty()) return;
    check(H5Dwrite(dataset.get(), element.native, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    if constexpr (std::is_same_v<T, float>) {
      const haddr_t offset = H5Dget_offset(dataset.get());
      if (offset == HADDR_UNDEF) throw Error(ErrorSource::hdf5, fmt::format("'{}' has no offset in its file", name));
      file_->uncovered.push_back({offset, values.size_bytes()});
    }
  });
}
template void ArrayWriter::add_values(const std::string&, const Shape&, std::span<const float>);
template void ArrayWriter::add_values(const std::string&, const Shape&, std::span<const double>);
template void ArrayWriter::add_values(const std::string&, const Shape&, std::span<const std::uint8_t>);
template void ArrayWriter::add_values(const std::string&, const Shape&, std::span<const std::int32_t>);
template void ArrayWriter::add_values(const std::string&, const Shape&, std::span<const std::int64_t>);

void ArrayWriter::add_text(const std::string& name, const std::string& text) {
  if (text.find('\0') != std::string::npos) {
    throw Error(ErrorSource::internal, fmt::format("the text '{}' contains a zero byte", name));
  }
  file_->writing([&] {
    const TypeHandle type(check(H5Tcopy(H5T_C_S1)));
    check(H5Tset_size(type.get(), text.size() + 1));
    check(H5Tset_cset(type.get(), H5T_CSET_UTF8));
    const DatasetHandle dataset = file_->make(name, type.get(), Shape{}, file_->contiguous);
    check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.c_str()));
  });
}

MemoryFileWriter::MemoryFileWriter(std::vector<std::byte> buffer) {
  file_->buffer = std::move(buffer);
  file_->writing([&] { file_->begin(create_in(file_->buffer)); });
}

std::vector<std::byte> MemoryFileWriter::finish() {
  ByteBuffer& buffer = file_->buffer;
  file_->writing([&] {
    if (!file_->file) throw Error(ErrorSource::internal, "finish() was called twice");
    check(H5Fflush(file_->file.get(), H5F_SCOPE_GLOBAL));
    const hid_t bytes = check(hid_t{H5Fget_file_image(file_->file.get(), nullptr, 0)});
    file_->close();
    buffer.resize(static_cast<std::size_t>(bytes));
    // HDF5 truncates unused space at the end when it closes a file. This one keeps it, so its length is updated.
    for (std::size_t i = 0; i < sizeof(bytes); ++i) buffer.at(kLengthAt + i) = static_cast<std::byte>(bytes >> (8 * i));
  });
  const std::vector<std::byte> seal = seal_for(buffer, std::move(file_->uncovered));
  buffer.insert(buffer.end(), seal.begin(), seal.end());
  return std::move(buffer);
}

RowFileWriter::RowFileWriter(const std::string& path) {
  file_->path = path;
  file_->whole.emplace(path);
  if (file_->whole->temporary().empty()) {
    throw Error(ErrorSource::save,
                fmt::format("cannot save '{}': HDF5 can only write regular files; choose another name", path));
  }
  file_->writing([&] { file_->begin(create(file_->whole->temporary(), access_without_locks())); });
}

void RowFileWriter::begin_rows(const std::string& name, const Shape& shape) {
  file_->writing([&] {
    file_->finish_rows();
    RowStream rows{.name = name, .shape = shape};
    const PropertiesHandle layout = layout_without_times();
    check(H5Pset_chunk(layout.get(), shape.ndim(), extents_of(shape.with_first(rows.chunk_rows)).data()));
    rows.dataset = file_->make(name, element_of(std::uint8_t{}).stored, shape, layout);
    file_->rows = std::move(rows);
  });
}

void RowFileWriter::append_rows(std::span<const std::uint8_t> rows) {
  if (!file_->rows) throw Error(ErrorSource::internal, "append_rows without begin_rows");
  file_->writing([&] { file_->rows->append(rows); });
}

void RowFileWriter::commit() {
  file_->writing([&] {
    file_->finish_rows();
    file_->close();
  });
  file_->whole->append(seal_for(file_->whole->temporary(), std::move(file_->uncovered)));
  file_->whole->commit();
}

// HDF5 allocates the arrays one after another: it opens a file that ends, by its superblock, before the first of them.
RawFileWriter::RawFileWriter(const std::string& path, std::span<const Array> arrays) {
  file_->path = path;
  std::int64_t length = kAlignment;
  for (const Array& array : arrays) length += array.bytes;
  begin_raw_file(path, empty_head(), length);
  file_->writing([&] {
    const PropertiesHandle access = access_without_locks();
    allow_versions(access);
    check(H5Pset_alignment(access.get(), kAlignment, kAlignment));
    check(H5Pset_meta_block_size(access.get(), kAlignment / 2));  // so that all structures come before the arrays
    file_->begin(FileHandle(check(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()))));
    const PropertiesHandle layout = layout_without_times();
    check(H5Pset_layout(layout.get(), H5D_CONTIGUOUS));
    check(H5Pset_alloc_time(layout.get(), H5D_ALLOC_TIME_EARLY));
    haddr_t expected = kAlignment;
    for (const Array& array : arrays) {
      const DatasetHandle dataset =
          file_->make(array.name, element_of(std::uint8_t{}).stored, Shape{array.bytes}, layout);
      if (H5Dget_offset(dataset.get()) != expected) {
        throw Error(ErrorSource::hdf5, fmt::format("'{}' is not allocated at {}", array.name, expected));
      }
      file_->uncovered.push_back({expected, static_cast<std::uint64_t>(array.bytes)});
      expected += static_cast<haddr_t>(array.bytes);
    }
  });
}

void RawFileWriter::commit(const std::string& target) {
  file_->writing([&] { file_->close(); });
  append_durably(file_->path, seal_for(file_->path, std::move(file_->uncovered)));
  rename_durably(file_->path, target);
}

}  // namespace tutti
