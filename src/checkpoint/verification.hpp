#pragma once
// Whether a checkpoint file is, byte for byte, what its manifest says. To be asked before HDF5 sees the
// bytes: the library trusts its own structures and may crash on damaged ones.

#include "manifest.hpp"

#include <string>

namespace tutti {

// Where the manifest of a checkpoint file lies.
std::string manifest_path(const std::string& checkpoint_path);

// The manifest of a file that agrees with it. Throws an error that says what is wrong; the caller knows the
// file.
Manifest verified_manifest(const std::string& checkpoint_path);

}  // namespace tutti
