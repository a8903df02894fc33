// Tables of labels of images.

#include "fuzz/parsed_input.hpp"
#include "sources.hpp"
#include "support/scratch_folder.hpp"

#include <fstream>

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile table;
  static const ScratchFolder folder;
  static const bool filled = [] {
    for (const char* name : {"a.png", "b.png", "b.jpg", "c d.jpeg", "1", "1.png"}) std::ofstream(folder.file(name));
    std::filesystem::create_symlink(table.path(), folder.file("labels.csv"));
    return true;
  }();
  static_cast<void>(filled);
  table.hold({data, size});
  std::vector<std::string> notes;
  fuzz::takes({ErrorSource::input}, [&] {
    const auto set = list_labelled_folder(folder.path(), notes);
    const auto classes = std::ssize(set->info.class_names);
    for (const std::int32_t label : set->labels) {
      if (label < 0 || label >= classes) fuzz::report("a label of no class");
    }
  });
  return 0;
}
