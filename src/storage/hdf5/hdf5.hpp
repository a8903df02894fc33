#pragma once
// Wrappers for HDF5: checked results, RAII handles and a global lock.

#include "tutti/base/shape.hpp"
#include "tutti/base/unique_handle.hpp"

#include <hdf5.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <source_location>
#include <string>
#include <string_view>

namespace tutti::hdf5 {

// Checks a result of HDF5 (an identifier, size, status or htri_t). If it is negative, throws an Error with the
// innermost message of HDF5's error stack.
hid_t check(hid_t result, std::source_location where = std::source_location::current());
herr_t check(herr_t result, std::source_location where = std::source_location::current());

// Locks HDF5, which may be built without thread safety. The lock is recursive. Also turns off HDF5's printing of error
// stacks in the calling thread.
[[nodiscard]] std::unique_lock<std::recursive_mutex> lock_hdf5();

// Ignores errors, since a deleter cannot throw. No data is lost: files that matter are flushed or closed earlier, with
// checked results.
template <herr_t (*close)(hid_t)>
struct Close {
  void operator()(hid_t id) const noexcept {
    const auto lock = lock_hdf5();
    static_cast<void>(close(id));
  }
};

template <herr_t (*close)(hid_t)>
using Handle = UniqueHandle<hid_t, Close<close>, H5I_INVALID_HID>;

using FileHandle = Handle<&H5Fclose>;
using ObjectHandle = Handle<&H5Oclose>;
using DatasetHandle = Handle<&H5Dclose>;
using SpaceHandle = Handle<&H5Sclose>;
using TypeHandle = Handle<&H5Tclose>;
using PropertiesHandle = Handle<&H5Pclose>;

// File access properties that turn off HDF5's file locking.
PropertiesHandle access_without_locks();
std::array<hsize_t, Shape::kMaxDims> extents_of(const Shape& shape);
SpaceHandle space_of(const Shape& shape);
// The rows of a dataset from `first` on that have this shape.
SpaceHandle rows_of(const DatasetHandle& dataset, std::int64_t first, const Shape& shape);
// A unique name for a file in memory: HDF5 treats two open files of the same name as one.
std::string new_memory_file_name();

// An element type of arrays: how HDF5 stores and checks it. The identifiers are owned by HDF5.
struct Element {
  std::string_view name;
  hid_t stored;
  hid_t native;
  H5T_class_t kind;
  std::size_t bytes;
  H5T_sign_t sign;  // of integers
};

inline Element element_of(float) { return {"f32", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, H5T_FLOAT, 4, H5T_SGN_ERROR}; }
inline Element element_of(double) { return {"f64", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, H5T_FLOAT, 8, H5T_SGN_ERROR}; }
inline Element element_of(std::uint8_t) { return {"u8", H5T_STD_U8LE, H5T_NATIVE_UINT8, H5T_INTEGER, 1, H5T_SGN_NONE}; }
inline Element element_of(std::int32_t) { return {"i32", H5T_STD_I32LE, H5T_NATIVE_INT32, H5T_INTEGER, 4, H5T_SGN_2}; }
inline Element element_of(std::int64_t) { return {"i64", H5T_STD_I64LE, H5T_NATIVE_INT64, H5T_INTEGER, 8, H5T_SGN_2}; }

}  // namespace tutti::hdf5
