#include "backend/digest_contract.hpp"

namespace tutti::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, DigestContract, ::testing::Values([] { return make_cpu_backend(); }));

}  // namespace
}  // namespace tutti::testing_support
