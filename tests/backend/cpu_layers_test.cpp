#include "backend/small_layer_contract.hpp"

namespace tutti::testing_support {
namespace {

const BackendUnderTest kCpu{"cpu", [] { return make_cpu_backend(); }, 1e-5, 1e-4};

INSTANTIATE_TEST_SUITE_P(Cpu, LayerContract,
                         ::testing::Combine(::testing::Values(kCpu), ::testing::ValuesIn(all_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Cpu, SmallLayerContract,
                         ::testing::Combine(::testing::Values(kCpu), ::testing::ValuesIn(small_cases())),
                         layer_contract_name);

}  // namespace
}  // namespace tutti::testing_support
