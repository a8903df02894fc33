#include "tutti/backend/cuda_library.hpp"

#include "backend/cuda/format.hpp"
#include "backend/layout_contract.hpp"
#include "backend/norm_contract.hpp"
#include "backend/small_layer_contract.hpp"

namespace tutti::testing_support {
namespace {

// Without measuring: the same plans in every case.
std::unique_ptr<Backend> make_cuda(Precision precision) {
  return tutti_cuda_library().make_backend({.precision = precision, .search_plans = false});
}
std::unique_ptr<Backend> make_cuda_in_fp32() { return make_cuda(Precision::fp32); }
std::unique_ptr<Backend> make_cuda_in_bf16() { return make_cuda(Precision::bf16); }

std::vector<LayoutUnderTest> cuda_layouts(ElementType type) {
  return {{"plain", cuda::plain_activation_of},
          {"within", [type](const Shape& shape) { return cuda::activation_of(shape, type); }}};
}

const BackendUnderTest kCuda{"cuda", make_cuda_in_fp32, 1e-5, 1e-4, cuda_layouts(ElementType::f32)};
const BackendUnderTest kCudaInBf16{"cuda in bf16", make_cuda_in_bf16, 1e-2, 2e-2, {cuda_layouts(ElementType::bf16)[1]}};

INSTANTIATE_TEST_SUITE_P(Cuda, LayerContract,
                         ::testing::Combine(::testing::Values(kCuda), ::testing::ValuesIn(all_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Cuda, SmallLayerContract,
                         ::testing::Combine(::testing::Values(kCuda), ::testing::ValuesIn(small_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Cuda, LayoutContract,
                         ::testing::Combine(::testing::Values(kCuda), ::testing::ValuesIn(layout_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(CudaInBf16, LayoutContract,
                         ::testing::Combine(::testing::Values(kCudaInBf16), ::testing::ValuesIn(plain_layout_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Cuda, NormContract, ::testing::Values(kCuda));

}  // namespace
}  // namespace tutti::testing_support
