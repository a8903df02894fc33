#pragma once
// HDF5 as this folder uses it: checked results, identifiers with owners, and one thread at a time.

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

// Identifiers and sizes, statuses and three-valued answers; negative means failure, which becomes an Error that carries
// HDF5's innermost explanation.
hid_t check(hid_t result, std::source_location where = std::source_location::current());
herr_t check(herr_t result, std::source_location where = std::source_location::current());

// HDF5 may be built without thread safety, so one thread at a time calls it. A thread may take turns within its turn.
// HDF5 prints no error traces meanwhile.
[[nodiscard]] std::unique_lock<std::recursive_mutex> take_turn();

// What closing reports cannot be thrown from here; nothing is lost by it, since a file that counts is flushed or
// closed before, with its result checked.
template <herr_t (*close)(hid_t)>
struct Close {
  void operator()(hid_t id) const noexcept {
    const auto turn = take_turn();
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

// How HDF5 opens files on the disk: without locking them.
PropertiesHandle access_without_locks();
std::array<hsize_t, Shape::kMaxRank> extents_of(const Shape& shape);
SpaceHandle space_of(const Shape& shape);
// HDF5 takes files in memory of one name for the same file, so each gets its own.
std::string new_image_name();

// The element types that arrays may have, as HDF5 stores and checks them. The identifiers are HDF5's own.
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
