// Writes the golden checkpoint, only for a new format version or for files of other bytes. In the root of the checkout:
//   cmake --build --preset release --target storage_write_golden
//   build/release/tests/storage_write_golden /tmp
// The file belongs in tests/storage/golden/format-2, and its manifest, which has format 3, in format-3.

#include "storage/checkpoint_format.hpp"
#include "storage/sample_state.hpp"
#include "storage/written_checkpoint.hpp"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: storage_write_golden FOLDER\n", stderr);
    return 64;
  }
  try {
    tutti::write_checkpoint(argv[1], {tutti::sample_state()});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 73;
  }
}
