#include "backend/cpu_layouts.hpp"
#include "backend/layout_contract.hpp"
#include "backend/small_layer_contract.hpp"

namespace tutti::testing_support {
namespace {

std::unique_ptr<Backend> make_bf16() { return make_cpu_backend(Precision::bf16); }

const BackendUnderTest kBf16{"cpu bf16", make_bf16, 1e-2, 2e-2, cpu_layouts(dnnl::memory::data_type::bf16)};

std::vector<NetworkCase> cleared_small_cases() {
  std::vector<NetworkCase> cases = small_cases();
  // Its pooled gradient is the same for all pixels, and of such a gradient a norm leaves little but rounding errors.
  std::erase_if(cases, [](const NetworkCase& network) { return network.name == "SmallResnet"; });
  for (NetworkCase& network : cases) network.clear_of_kinks = true;
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Bf16, LayerContract,
                         ::testing::Combine(::testing::Values(kBf16), ::testing::ValuesIn(all_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Bf16, SmallLayerContract,
                         ::testing::Combine(::testing::Values(kBf16), ::testing::ValuesIn(cleared_small_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Bf16, LayoutContract,
                         ::testing::Combine(::testing::Values(kBf16), ::testing::ValuesIn(layout_cases())),
                         layer_contract_name);

}  // namespace
}  // namespace tutti::testing_support
