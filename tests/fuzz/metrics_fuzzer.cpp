// Two runs' metrics.jsonl as `diff` reads and compares them.

#include "differences.hpp"
#include "fuzz/parsed_input.hpp"

using namespace tutti;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile a, b;
  fuzz::Input input(data, size);
  a.hold(fuzz::take_part(input));
  b.hold(input);
  fuzz::takes({ErrorSource::input}, [&] {
    const MetricsRecords of_a = read_metrics(a.path());
    if (compare_metrics(of_a, of_a).differ) fuzz::report("records differ from themselves");
    compare_metrics(of_a, read_metrics(b.path()));
  });
  return 0;
}
