// idx files of images and of labels: raw, decompressed by zlib, or compressed first.

#include "fuzz/gzipped.hpp"
#include "fuzz/parsed_input.hpp"
#include "sources.hpp"

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile images, labels;
  fuzz::Input input(data, size);
  const bool packs = fuzz::take_byte(input) % 4 == 1;
  const fuzz::Input front = fuzz::take_part(input);
  images.hold(packs ? fuzz::Input(fuzz::gzipped(front)) : front);
  labels.hold(input);
  fuzz::takes({ErrorSource::input, ErrorSource::io}, [&] {
    GrowingMemory block;
    const LoadedSet read = read_idx(images.path(), labels.path(), block);
    const std::int64_t pixels = read.info.image.elements() * std::ssize(read.labels);
    if (std::cmp_not_equal(std::get<Pixels>(read.pixels).size, pixels))
      fuzz::report("read other images than there are labels");
  });
  return 0;
}
