#include "shared_sums_contract.hpp"
#include "support/mpi_world.hpp"

#include <string>

namespace tutti {
namespace {

CommunicatorCase by(SumAlgorithm algorithm, bool helper_thread = false) {
  return {name_of(algorithm) + std::string(helper_thread ? "_with_helper_thread" : ""), test_world, [=](World& world) {
            return make_mpi_ring_communicator(world, {.helper_thread = helper_thread, .algorithm = algorithm});
          }};
}

const auto communicators =
    testing::Values(by(SumAlgorithm::ring), by(SumAlgorithm::ring, true), by(SumAlgorithm::direct),
                    by(SumAlgorithm::window), by(SumAlgorithm::window, true), by(SumAlgorithm::automatic),
                    CommunicatorCase{"library", test_world, make_mpi_library_communicator});
INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorContract, communicators, case_name);
INSTANTIATE_TEST_SUITE_P(Mpi, SharedSumContract, communicators, case_name);

}  // namespace
}  // namespace tutti
