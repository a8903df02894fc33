#include "shared_sums_contract.hpp"
#include "support/mpi_world.hpp"

namespace tutti {
namespace {

const auto communicators =
    testing::Values(CommunicatorCase{"ring", test_world, [](World& w) { return make_mpi_ring_communicator(w, {}); }},
                    CommunicatorCase{"ring_with_helper_thread", test_world,
                                     [](World& w) { return make_mpi_ring_communicator(w, {.helper_thread = true}); }},
                    CommunicatorCase{"library", test_world, make_mpi_library_communicator});
INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorContract, communicators, case_name);
INSTANTIATE_TEST_SUITE_P(Mpi, SharedSumContract, communicators, case_name);

}  // namespace
}  // namespace tutti
