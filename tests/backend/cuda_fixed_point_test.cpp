#include "tutti/backend/cuda_library.hpp"

#include "backend/fixed_point_contract.hpp"

namespace tutti::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, FixedPointContract,
                         ::testing::Values([] { return tutti_cuda_library().make_backend({}); }));

}  // namespace
}  // namespace tutti::testing_support
