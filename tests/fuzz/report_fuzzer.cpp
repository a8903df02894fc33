// What a run's folder holds as `report` reads and draws it: whatever that is, the page is whole.

#include "fuzz/parsed_input.hpp"
#include "report/page.hpp"
#include "support/markup.hpp"
#include "support/scratch_folder.hpp"

#include <filesystem>

using namespace tutti;

namespace {

// Links to files in memory, so that no disk is written to.
class MemoryRun {
 public:
  MemoryRun() {
    std::filesystem::create_symlink(metrics.path(), folder.file("metrics.jsonl"));
    std::filesystem::create_symlink(options.path(), folder.file("config.toml"));
    std::filesystem::create_symlink(end.path(), folder.file("exit.json"));
  }

  ScratchFolder folder;
  fuzz::MemoryFile metrics, options, end;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const MemoryRun run;
  fuzz::Input input(data, size);
  run.end.hold(fuzz::take_part(input));
  run.options.hold(fuzz::take_part(input));
  run.metrics.hold(input);
  fuzz::takes({ErrorSource::input}, [&] {
    const std::string page = report_page(read_run_history(run.folder.path()), "the scores are not known");
    try {
      read_markup(page);
    } catch (const std::runtime_error& error) {
      fuzz::report(error.what());
    }
  });
  return 0;
}
