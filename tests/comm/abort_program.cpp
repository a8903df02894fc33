// Started on multiple ranks by abort_ends_the_job.cmake: one rank aborts its world, or a sub-world, while all others
// wait for it in a collective that it never reaches.

#include "tutti/comm/world.hpp"

#include <cstdio>
#include <memory>
#include <string_view>

int main(int argc, char** argv) {
  const std::unique_ptr<tutti::World> world = tutti::make_mpi_world();
  const bool of_sub_world = argc > 1 && std::string_view(argv[1]) == "sub-world";
  const int last = world->size() - 1;
  const std::unique_ptr<tutti::World> sub = world->split(world->rank() == last ? 1 : 0);
  if (world->rank() == 0) {
    std::puts("all ranks are there");
    std::fflush(stdout);
  }
  world->barrier();
  if (world->rank() == last) (of_sub_world ? *sub : *world).abort(70);
  world->barrier();
  std::puts("a rank went on after the abort");
  world->close();
}
