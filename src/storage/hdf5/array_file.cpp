#include "tutti/storage/array_file.hpp"

#include "tutti/base/error.hpp"

#include "hdf5.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <map>
#include <set>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

using namespace hdf5;

constexpr int kMaxGroupDepth = 16;
// Of a compressed array: labels of up to 8 bytes are stored next to images of at least one byte.
constexpr double kMaxExpansion = 8;
// Programs choose the chunks of arrays that may grow before they know their size.
constexpr double kMaxSpareChunkBytes = 4 << 20;

// Runs `action` with HDF5 locked. Rethrows every error as an input error with the prefix `what`.
template <class Action>
auto with_context(const std::string& what, Action action) {
  const auto lock = lock_hdf5();
  try {
    return action();
  } catch (const Error& error) {
    throw Error(ErrorSource::input, fmt::format("{}: {}", what, error.what()));
  }
}

Error fault(const std::string& text) { return Error(ErrorSource::input, text); }

FileHandle open_without_locks(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    throw Error(ErrorSource::io, fmt::format("cannot open '{}': {}; check the path and its permissions", path,
                                             std::generic_category().message(errno)));
  }
  if (!S_ISREG(status.st_mode)) throw fault(fmt::format("'{}' is not a file", path));
  return with_context(fmt::format("'{}' is not a readable HDF5 file", path), [&] {
    return FileHandle(check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access_without_locks().get())));
  });
}

// The callbacks make HDF5 use the caller's bytes in place, without copying them.
FileHandle open_in_memory(std::span<const std::byte> contents, const std::string& origin) {
  using Purpose = H5FD_file_image_op_t;
  void* const bytes = const_cast<std::byte*>(contents.data());  // NOLINT: opened read-only
  H5FD_file_image_callbacks_t callbacks{
      .image_malloc = [](std::size_t, Purpose, void* own) { return own; },
      .image_memcpy = [](void* to, const void*, std::size_t, Purpose, void*) { return to; },
      .image_realloc = [](void*, std::size_t, Purpose, void*) -> void* { return nullptr; },
      .image_free = [](void*, Purpose, void*) -> herr_t { return 0; },
      .udata_copy = [](void* own) { return own; },
      .udata_free = [](void*) -> herr_t { return 0; },
      .udata = bytes};
  return with_context(fmt::format("'{}' is not a readable HDF5 file", origin), [&] {
    const PropertiesHandle access(check(H5Pcreate(H5P_FILE_ACCESS)));
    check(H5Pset_fapl_core(access.get(), /*increment=*/1, /*backing_store=*/false));
    check(H5Pset_file_image_callbacks(access.get(), &callbacks));
    check(H5Pset_file_image(access.get(), bytes, contents.size()));
    return FileHandle(check(H5Fopen(new_memory_file_name().c_str(), H5F_ACC_RDONLY, access.get())));
  });
}

bool is_a(const ObjectHandle& object, H5I_type_t type) { return H5Iget_type(object.get()) == type; }

// Other links could lead to any file that the reader may open.
void require_hard(const H5L_info_t& link, const std::string& name) {
  if (link.type != H5L_TYPE_HARD) throw fault(fmt::format("'{}' is a link to another name or file", name));
}

// The object of that name, or an empty handle. Follows the path link by link, since H5Lexists fails if a group in the
// path is missing.
ObjectHandle find(hid_t file, std::string_view name) {
  ObjectHandle object(check(H5Oopen(file, "/", H5P_DEFAULT)));
  while (!name.empty()) {
    const std::string component(name.substr(0, name.find('/')));
    name.remove_prefix(std::min(component.size() + 1, name.size()));
    if (component.empty()) continue;
    if (!is_a(object, H5I_GROUP) || check(H5Lexists(object.get(), component.c_str(), H5P_DEFAULT)) == 0) return {};
    H5L_info_t link{};
    check(H5Lget_info(object.get(), component.c_str(), &link, H5P_DEFAULT));
    require_hard(link, component);
    object = ObjectHandle(check(H5Oopen(object.get(), component.c_str(), H5P_DEFAULT)));
  }
  return object;
}

struct Link {
  std::string name;
  H5L_info_t info{};

  // The address of the object in its file, which other versions of HDF5 call a token.
  std::string target() const { return {reinterpret_cast<const char*>(&info.u), sizeof info.u}; }
};

// A callback from C code, which must not throw.
herr_t add_link(hid_t, const char* name, const H5L_info_t* info, void* links) noexcept {
  try {
    static_cast<std::vector<Link>*>(links)->push_back({name, *info});
    return 0;
  } catch (...) {
    return -1;
  }
}

// Collects the names of datasets, in any depth. Each group is visited once: links that form a cycle have no end, and
// links that meet again and again would take exponential time.
class NameCollector {
 public:
  void collect(hid_t group, const std::string& prefix, int depth = 0) {
    if (depth > kMaxGroupDepth) throw fault(fmt::format("groups are nested deeper than {}", kMaxGroupDepth));
    std::vector<Link> links;
    check(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, add_link, &links));
    for (const Link& link : links) {
      require_hard(link.info, prefix + link.name);
      const ObjectHandle object(check(H5Oopen(group, link.name.c_str(), H5P_DEFAULT)));
      if (is_a(object, H5I_DATASET)) names_.push_back(prefix + link.name);
      if (!is_a(object, H5I_GROUP)) continue;
      if (!groups_.insert(link.target()).second) {
        throw fault(fmt::format("the group '{}' has a second name", prefix + link.name));
      }
      collect(object.get(), prefix + link.name + "/", depth + 1);
    }
  }

  std::vector<std::string> sorted() && {
    std::ranges::sort(names_);
    return std::move(names_);
  }

 private:
  std::vector<std::string> names_;
  std::set<std::string> groups_;
};

Shape shape_of(hid_t dataset) {
  const SpaceHandle space(check(H5Dget_space(dataset)));
  const H5S_class_t kind = H5Sget_simple_extent_type(space.get());
  if (kind == H5S_SCALAR) return {};
  const int rank = kind == H5S_SIMPLE ? check(H5Sget_simple_extent_ndims(space.get())) : 0;
  if (rank < 1 || rank > Shape::kMaxDims) {
    throw fault(fmt::format("it has {} dimensions instead of 0 to {}", rank, Shape::kMaxDims));
  }
  std::array<hsize_t, Shape::kMaxDims> extents{};
  check(H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr));
  std::vector<std::int64_t> shape;
  for (const hsize_t extent : std::span(extents).first(static_cast<std::size_t>(rank))) {
    if (extent > static_cast<hsize_t>(std::numeric_limits<std::int64_t>::max())) {
      throw fault(fmt::format("its extent {} is not valid", extent));
    }
    shape.push_back(static_cast<std::int64_t>(extent));
  }
  return Shape(std::span<const std::int64_t>(shape));
}

// Refuses an array whose values are in another file, or that needs more memory than a file of this size can be worth.
void require_plausible(hid_t dataset, hsize_t file_bytes) {
  const PropertiesHandle made(check(H5Dget_create_plist(dataset)));
  const H5D_layout_t layout = H5Pget_layout(made.get());
  if (check(H5Pget_external_count(made.get())) != 0 || layout == H5D_VIRTUAL) {
    throw fault("its values are stored in another file");
  }
  const TypeHandle type(check(H5Dget_type(dataset)));
  const auto element_bytes = static_cast<double>(H5Tget_size(type.get()));
  const SpaceHandle space(check(H5Dget_space(dataset)));
  const double array_bytes =
      element_bytes * static_cast<double>(check(hid_t{H5Sget_simple_extent_npoints(space.get())}));
  const bool is_compressed = check(H5Pget_nfilters(made.get())) != 0;
  const double most_bytes = static_cast<double>(file_bytes) * (is_compressed ? kMaxExpansion : 1);
  if (array_bytes > most_bytes) {
    throw fault(fmt::format("its {:.0f} bytes do not fit into a file of {}", array_bytes, file_bytes));
  }
  if (layout != H5D_CHUNKED || !is_compressed) return;
  std::array<hsize_t, H5S_MAX_RANK> chunk{};
  const int rank = check(H5Pget_chunk(made.get(), H5S_MAX_RANK, chunk.data()));
  double chunk_bytes = element_bytes;
  for (const hsize_t extent : std::span(chunk).first(static_cast<std::size_t>(rank))) {
    chunk_bytes *= static_cast<double>(extent);
  }
  // HDF5 decompresses whole chunks.
  if (chunk_bytes > std::max(array_bytes, kMaxSpareChunkBytes)) {
    throw fault(
        fmt::format("its chunks of {:.0f} bytes are larger than the array of {:.0f}", chunk_bytes, array_bytes));
  }
}

// Reads a variable-length string, which HDF5 allocates.
std::string read_variable_text(hid_t dataset, const TypeHandle& type) {
  char* text = nullptr;
  check(H5Dread(dataset, type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, static_cast<void*>(&text)));
  const std::unique_ptr<char, herr_t (*)(void*)> owner(text, &H5free_memory);
  return text == nullptr ? std::string() : std::string(text);
}

std::string read_fixed_text(hid_t dataset, const TypeHandle& type) {
  std::string text(H5Tget_size(type.get()), '\0');
  check(H5Dread(dataset, type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()));
  if (H5Tget_strpad(type.get()) == H5T_STR_SPACEPAD) {
    text.resize(text.find_last_not_of(' ') + 1);
  } else {
    text.resize(std::min(text.find('\0'), text.size()));
  }
  return text;
}

// The byte order may differ, since HDF5 converts it without loss.
void require_type(hid_t dataset, const Element& element) {
  const TypeHandle type(check(H5Dget_type(dataset)));
  const bool same = H5Tget_class(type.get()) == element.kind && H5Tget_size(type.get()) == element.bytes &&
                    (element.kind != H5T_INTEGER || H5Tget_sign(type.get()) == element.sign);
  if (!same) throw fault(fmt::format("its elements are not of type {}", element.name));
}

void require_value_count(std::size_t values, std::int64_t elements) {
  if (static_cast<std::int64_t>(values) == elements) return;
  throw fault(fmt::format("{} values do not fit into a buffer of {}", elements, values));
}

struct OpenRows {
  DatasetHandle dataset;
  Shape shape;
};

}  // namespace

struct ArrayFile::File {
  std::string path;
  FileHandle handle;
  std::map<std::string, OpenRows> rows{};

  // Runs `action` with HDF5 locked. Rethrows every error as an input error that names the file and the array.
  template <class Action>
  auto reading(const std::string& name, Action action) const {
    return with_context(fmt::format("'{}', array '{}'", path, name), action);
  }

  ObjectHandle open(const std::string& name) const {
    ObjectHandle object = find(handle.get(), name);
    if (!object) throw fault("there is no array of this name");
    if (!is_a(object, H5I_DATASET)) throw fault("it is a group, not an array");
    require_plausible(object.get(), bytes());
    return object;
  }

  hsize_t bytes() const {
    hsize_t bytes = 0;
    check(H5Fget_filesize(handle.get(), &bytes));
    return bytes;
  }

  // The dataset stays open, since rows are read often. Its chunk cache is off, so that HDF5 reads only the requested
  // rows. This requires chunks without filters; with filters, the file would also determine how much memory HDF5
  // allocates.
  const OpenRows& open_rows(const std::string& name) {
    if (const auto found = rows.find(name); found != rows.end()) return found->second;
    const ObjectHandle object = open(name);
    require_type(object.get(), element_of(std::uint8_t{}));
    const PropertiesHandle made(check(H5Dget_create_plist(object.get())));
    if (check(H5Pget_nfilters(made.get())) != 0) throw fault("it is compressed, and rows are read uncompressed only");
    OpenRows opened{.dataset = {}, .shape = shape_of(object.get())};
    if (opened.shape.ndim() == 0) throw fault("it has no rows");
    const PropertiesHandle access(check(H5Pcreate(H5P_DATASET_ACCESS)));
    check(H5Pset_chunk_cache(access.get(), 0, 0, 0));
    opened.dataset = DatasetHandle(check(H5Dopen2(handle.get(), name.c_str(), access.get())));
    return rows.emplace(name, std::move(opened)).first->second;
  }
};

ArrayFile::ArrayFile(const std::string& path) : file_(new File{path, open_without_locks(path)}) {}
ArrayFile::ArrayFile(std::span<const std::byte> contents, const std::string& origin)
    : file_(new File{origin, open_in_memory(contents, origin)}) {}

const std::string& ArrayFile::path() const { return file_->path; }

std::int64_t ArrayFile::bytes() const {
  const auto lock = lock_hdf5();
  return static_cast<std::int64_t>(file_->bytes());
}

bool ArrayFile::contains(const std::string& name) const {
  return file_->reading(name, [&] {
    const ObjectHandle object = find(file_->handle.get(), name);
    return object && is_a(object, H5I_DATASET);
  });
}

std::vector<std::string> ArrayFile::names(const std::string& group) const {
  return file_->reading(group, [&] {
    NameCollector names;
    const ObjectHandle object = find(file_->handle.get(), group);
    if (!object) return std::move(names).sorted();
    if (!is_a(object, H5I_GROUP)) throw fault("it is not a group");
    names.collect(object.get(), group.ends_with('/') ? group : group + "/");
    return std::move(names).sorted();
  });
}

Shape ArrayFile::shape(const std::string& name) const {
  return file_->reading(name, [&] { return shape_of(file_->open(name).get()); });
}

template <class T>
void ArrayFile::read_values(const std::string& name, const Shape& expected, std::span<T> values) const {
  file_->reading(name, [&] {
    const ObjectHandle dataset = file_->open(name);
    const Element element = element_of(T{});
    require_type(dataset.get(), element);
    const Shape found = shape_of(dataset.get());
    if (found != expected) throw fault(fmt::format("its shape is {} instead of {}", found.text(), expected.text()));
    require_value_count(values.size(), expected.elements());
    if (values.empty()) return;
    check(H5Dread(dataset.get(), element.native, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  });
}
template void ArrayFile::read_values(const std::string&, const Shape&, std::span<float>) const;
template void ArrayFile::read_values(const std::string&, const Shape&, std::span<double>) const;
template void ArrayFile::read_values(const std::string&, const Shape&, std::span<std::uint8_t>) const;
template void ArrayFile::read_values(const std::string&, const Shape&, std::span<std::int32_t>) const;
template void ArrayFile::read_values(const std::string&, const Shape&, std::span<std::int64_t>) const;

void ArrayFile::read_rows(const std::string& name, std::int64_t first, std::int64_t count,
                          std::span<std::uint8_t> values) const {
  file_->reading(name, [&] {
    const OpenRows& rows = file_->open_rows(name);
    const std::int64_t height = rows.shape[0];
    if (first < 0 || count < 0 || first > height || count > height - first) {
      throw fault(fmt::format("rows {} to {} were requested of {}", first, first + count, height));
    }
    const Shape wanted = rows.shape.with_first(count);
    require_value_count(values.size(), wanted.elements());
    if (values.empty()) return;
    const SpaceHandle from = rows_of(rows.dataset, first, wanted);
    const SpaceHandle to = space_of(wanted);
    check(H5Dread(rows.dataset.get(), H5T_NATIVE_UINT8, to.get(), from.get(), H5P_DEFAULT, values.data()));
  });
}

std::int64_t ArrayFile::offset(const std::string& name) const {
  return file_->reading(name, [&] {
    const ObjectHandle dataset = file_->open(name);
    require_type(dataset.get(), element_of(std::uint8_t{}));
    const haddr_t offset = H5Dget_offset(dataset.get());
    if (offset > file_->bytes()) throw fault("it is not stored in one piece");
    return static_cast<std::int64_t>(offset);
  });
}

std::string ArrayFile::read_text(const std::string& name) const {
  return file_->reading(name, [&] {
    const ObjectHandle dataset = file_->open(name);
    const TypeHandle type(check(H5Dget_type(dataset.get())));
    if (H5Tget_class(type.get()) != H5T_STRING) throw fault("it is not a string");
    if (shape_of(dataset.get()).elements() != 1) throw fault("expected exactly one string");
    return check(H5Tis_variable_str(type.get())) > 0 ? read_variable_text(dataset.get(), type)
                                                     : read_fixed_text(dataset.get(), type);
  });
}

}  // namespace tutti
