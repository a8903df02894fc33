// Writes the golden checkpoint anew; only for a new format version. From the root of the checkout:
//   cmake --build --preset release --target checkpoint_write_golden
//   build/release/tests/checkpoint_write_golden tests/checkpoint/golden

#include "tutti/checkpoint/checkpoint_store.hpp"

#include "checkpoint/sample_state.hpp"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: checkpoint_write_golden FOLDER\n", stderr);
    return 64;
  }
  try {
    const auto world = tutti::make_solo_world();
    tutti::CheckpointStore(argv[1]).save(*world, tutti::sample_state());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 73;
  }
}
