#pragma once
// Sole owners of HDF5 identifiers, one type per kind.

#include "tutti/base/unique_handle.hpp"

#include "check.hpp"

namespace tutti::hdf5 {

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

}  // namespace tutti::hdf5
