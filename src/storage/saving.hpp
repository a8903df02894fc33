#pragma once
// What all that write files have in common: the loop around write(), the rename that makes it last, and the words when
// a file cannot be saved.

#include "tutti/base/unique_handle.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// Where what is saved as `path` goes. Only a regular file, or nothing, may be replaced by another file; whatever else
// is there, as a device or a pipe, is written to.
struct OutputPlace {
  std::string path;   // behind the symbolic links, which stay
  Descriptor stream;  // open where there is something else; /dev/stdout is the stdout of this process
};
// Throws save errors, also for a folder, and for a pipe that nobody reads, which would not let us go on.
OutputPlace find_output(const std::string& path);

// Writes all, in as many calls as it takes. Returns what an error has left unwritten; errno says why.
std::span<const std::byte> write_all(int descriptor, std::span<const std::byte> bytes);

// Makes what is written under a temporary name the file, for good: renames, and flushes the folder. Throws save errors,
// also where something other than a regular file has the name.
void rename_for_good(const std::string& temporary, const std::string& path);

// Throws a save error: path, what was being done, the error's text, and what to do about it.
[[noreturn]] void fail_saving(const std::string& path, std::string_view action, int error);

}  // namespace tutti
