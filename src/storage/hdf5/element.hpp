#pragma once
// The element types that arrays may have, as HDF5 stores and checks them.

#include "check.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::hdf5 {

constexpr std::string_view kFloatName = "f32";

// The identifiers are HDF5's own and need no closing.
struct Element {
  std::string_view name;
  hid_t stored;
  hid_t native;
  H5T_class_t kind;
  std::size_t bytes;
  H5T_sign_t sign;  // of integers
};

inline Element element_of(float) { return {kFloatName, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, H5T_FLOAT, 4, H5T_SGN_ERROR}; }
inline Element element_of(double) { return {"f64", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, H5T_FLOAT, 8, H5T_SGN_ERROR}; }
inline Element element_of(std::uint8_t) { return {"u8", H5T_STD_U8LE, H5T_NATIVE_UINT8, H5T_INTEGER, 1, H5T_SGN_NONE}; }
inline Element element_of(std::int32_t) { return {"i32", H5T_STD_I32LE, H5T_NATIVE_INT32, H5T_INTEGER, 4, H5T_SGN_2}; }
inline Element element_of(std::int64_t) { return {"i64", H5T_STD_I64LE, H5T_NATIVE_INT64, H5T_INTEGER, 8, H5T_SGN_2}; }

// Another byte order of the same type is the same type: HDF5 converts without loss.
inline bool same_type(hid_t type, const Element& element) {
  return H5Tget_class(type) == element.kind && H5Tget_size(type) == element.bytes &&
         (element.kind != H5T_INTEGER || H5Tget_sign(type) == element.sign);
}

}  // namespace tutti::hdf5
