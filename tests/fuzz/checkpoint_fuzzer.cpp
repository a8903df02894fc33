// Checkpoints whose manifest, table and checksums fit what the file holds, as a careful forger's would: the words of a
// manifest in front, then the file from its signature on.

#include "tutti/base/crc32c.hpp"
#include "tutti/base/sha256.hpp"

#include "fuzz/parsed_input.hpp"
#include "fuzz/sealed.hpp"
#include "support/scratch_folder.hpp"
#include "verification.hpp"

using namespace tutti;

namespace {

// Makes size and checksums fit, where the words can be read.
std::string fitted(const std::string& words, std::span<const std::byte> image) {
  const std::string text = fuzz::sealed(words);
  try {
    Manifest manifest = parse_manifest(std::as_bytes(std::span(text)));
    if (manifest.files.empty()) return text;
    ManifestFile& file = manifest.files.front();
    file.bytes = std::ssize(image);
    file.sha256 = sha256_text(image);
    for (StoredArray& array : file.arrays) {
      if (array.offset > file.bytes || array.bytes > file.bytes - array.offset) continue;
      array.crc32c =
          crc32c(image.subspan(static_cast<std::size_t>(array.offset), static_cast<std::size_t>(array.bytes)));
    }
    return manifest_text(manifest);
  } catch (const Error&) {
    return text;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile manifest, image;
  static const ScratchFolder folder;
  static const std::string path = [] {
    std::filesystem::create_symlink(manifest.path(), folder.file("step-00000042.json"));
    std::filesystem::create_symlink(image.path(), folder.file("step-00000042.h5"));
    return folder.file("step-00000042.h5");
  }();
  constexpr std::string_view kSignature = "\x89HDF";
  const fuzz::Input input(data, size);
  const auto file = std::ranges::search(input, kSignature).begin();
  const fuzz::Input bytes(file, input.end());
  const std::string words = fitted({input.begin(), file}, std::as_bytes(bytes));
  manifest.hold({reinterpret_cast<const std::uint8_t*>(words.data()), words.size()});
  image.hold(bytes);
  fuzz::takes({ErrorSource::checkpoint, ErrorSource::io, ErrorSource::input},
              [&] { state_of(read_checkpoint_bytes(path), path); });
  return 0;
}
