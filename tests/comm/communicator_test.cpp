#include "shared_sums_contract.hpp"
#include "support/mpi_world.hpp"

#include <string>

namespace tutti {
namespace {

CommunicatorCase by(AllReduceAlgorithm algorithm, bool helper_thread = false) {
  return {std::string(name_of(algorithm)) + (helper_thread ? "_with_helper_thread" : ""), test_world,
          [=](World& world) {
            return make_mpi_communicator(world, {.helper_thread = helper_thread, .algorithm = algorithm});
          }};
}

const auto communicators = testing::Values(
    by(AllReduceAlgorithm::ring), by(AllReduceAlgorithm::ring, true), by(AllReduceAlgorithm::direct),
    by(AllReduceAlgorithm::shared_memory), by(AllReduceAlgorithm::shared_memory, true),
    by(AllReduceAlgorithm::automatic),
    CommunicatorCase{"library", test_world, [](World& world) { return make_mpi_library_communicator(world); }});
INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorContract, communicators, case_name);
INSTANTIATE_TEST_SUITE_P(Mpi, SharedSumContract, communicators, case_name);

}  // namespace
}  // namespace tutti
