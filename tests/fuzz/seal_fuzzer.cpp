// The seal at the end of data files: any other bytes are refused before HDF5 reads the file.

#include "tutti/storage/array_file.hpp"
#include "tutti/storage/seal.hpp"

#include "fuzz/parsed_input.hpp"

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile file;
  file.hold({data, size});
  fuzz::takes({ErrorSource::input, ErrorSource::io}, [&] { check_seal(file.path()); });
  return 0;
}
