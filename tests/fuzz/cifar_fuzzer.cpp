// CIFAR's batches, raw or as whatever zlib finds in them, and the names of its classes.

#include "fuzz/parsed_input.hpp"
#include "sources.hpp"
#include "support/scratch_folder.hpp"

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile batch, names;
  static const ScratchFolder folder;
  static const bool linked = [] {
    std::filesystem::create_symlink(names.path(), folder.file("batches.meta.txt"));
    return true;
  }();
  static_cast<void>(linked);
  fuzz::Input input(data, size);
  const bool is_names = fuzz::take_byte(input) == 'n';
  (is_names ? names : batch).hold(input);
  fuzz::takes({ErrorSource::input, ErrorSource::io}, [&] {
    if (is_names) {
      read_cifar_class_names(folder.path());
      return;
    }
    const LoadedSet read = read_cifar({batch.path()});
    if (std::get<0>(read.pixels).size() != read.labels.size() * 3072)
      fuzz::report("read other images than there are labels");
  });
  return 0;
}
