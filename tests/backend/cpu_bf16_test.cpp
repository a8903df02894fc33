#include "backend/cpu_layouts.hpp"
#include "backend/layout_contract.hpp"
#include "backend/small_network_contract.hpp"
#include "backend/whole_batch_contract.hpp"

namespace tutti::testing_support {
namespace {

std::unique_ptr<Backend> make_bf16() { return make_cpu_backend(Precision::bf16); }

const BackendUnderTest kBf16{"cpu bf16", make_bf16, 1e-2, 2e-2, cpu_layouts(ElementType::bf16)};

INSTANTIATE_TEST_SUITE_P(Bf16, LayerContract,
                         ::testing::Combine(::testing::Values(kBf16), ::testing::ValuesIn(all_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Bf16, SmallNetworkContract,
                         ::testing::Combine(::testing::Values(kBf16), ::testing::ValuesIn(cleared_small_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Bf16, LayoutContract,
                         ::testing::Combine(::testing::Values(kBf16), ::testing::ValuesIn(layout_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Bf16, WholeBatchContract,
                         ::testing::Combine(::testing::Values(kBf16), ::testing::ValuesIn(whole_batch_cases())),
                         layer_contract_name);

}  // namespace
}  // namespace tutti::testing_support
