#include "communicator_contract.hpp"
#include "support/mpi_world.hpp"

namespace tutti {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Mpi, CommunicatorContract,
    testing::Values(CommunicatorCase{"ring", test_world, [](World& w) { return make_mpi_ring_communicator(w, {}); }},
                    CommunicatorCase{"ring_with_helper_thread", test_world,
                                     [](World& w) { return make_mpi_ring_communicator(w, {.helper_thread = true}); }},
                    CommunicatorCase{"library", test_world, make_mpi_library_communicator}),
    case_name);

}  // namespace
}  // namespace tutti
