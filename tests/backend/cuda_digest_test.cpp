#include "tutti/backend/cuda_library.hpp"

#include "backend/digest_contract.hpp"

namespace tutti::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, DigestContract, ::testing::Values([] { return tutti_cuda_library().make_backend({}); }));

}  // namespace
}  // namespace tutti::testing_support
