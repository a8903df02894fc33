// CIFAR's batches, raw or decompressed by zlib, and the names of its classes with a good batch.

#include "fuzz/parsed_input.hpp"
#include "sources.hpp"
#include "support/scratch_folder.hpp"

#include <vector>

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile batch, names;
  static const ScratchFolder folder;
  static const std::vector<std::uint8_t> good_batch(3073);
  static const bool linked = [] {
    std::filesystem::create_symlink(names.path(), folder.file("batches.meta.txt"));
    std::filesystem::create_symlink(batch.path(), folder.file("data_batch_1.bin"));
    return true;
  }();
  static_cast<void>(linked);
  fuzz::Input input(data, size);
  const bool is_names = fuzz::take_byte(input) == 'n';
  batch.hold(is_names ? fuzz::Input(good_batch) : input);
  if (is_names) names.hold(input);
  fuzz::takes({ErrorSource::input, ErrorSource::io}, [&] {
    GrowingMemory block;
    const LoadedSet read =
        is_names ? read_binary_set(folder.path(), {}, "data_batch", block).value() : read_cifar({batch.path()}, block);
    if (std::get<Pixels>(read.pixels).size != read.labels.size() * 3072)
      fuzz::report("read other images than there are labels");
  });
  return 0;
}
