#include "tutti/base/error.hpp"

#include "backend/optimizer_contract.hpp"

namespace tutti::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, FlatContract, ::testing::Values(FlatBackend{"cpu", [] { return make_cpu_backend(); }}));

TEST(CpuFlat, RefusesTensorsThatDoNotMatch) {
  Device device(make_cpu_backend());
  const Buffer buffer = device.buffer_of({1, 2, 3, 4});
  const Tensor four = buffer.view({4}, ElementType::f32);
  const Tensor three = buffer.view({3}, ElementType::f32);
  const Tensor integers = buffer.view({4}, ElementType::i32);
  Tensor elsewhere = four;
  elsewhere.space = MemorySpace::cuda;
  Backend& backend = device.backend();
  EXPECT_THROW(backend.copy(device.stream(), four, three), Error);
  EXPECT_THROW(backend.copy(device.stream(), elsewhere, four), Error);
  EXPECT_THROW(backend.fill_zero(device.stream(), elsewhere), Error);
  EXPECT_THROW(backend.add(device.stream(), four, three), Error);
  EXPECT_THROW(backend.add(device.stream(), four, integers), Error);
  EXPECT_THROW(backend.sgd_step(device.stream(), {four, three, {}, 0.1f}), Error);
  EXPECT_THROW(backend.sgd_step(device.stream(), {four, four, three, 0.1f, 0.9f}), Error);
  EXPECT_THROW(backend.sgd_step(device.stream(), {four, four, {}, 0.1f, 0, 0, false, {}, four}), Error);
  EXPECT_THROW(backend.adamw_step(device.stream(), {four, four, four, three}), Error);
  EXPECT_THROW(backend.sum_squares(device.stream(), {{four}}, four), Error);
  EXPECT_THROW(backend.clip_factor(device.stream(), four, 1, four), Error);
}

TEST(CpuFlat, RefusesMomentumWithoutAVelocity) {
  Device device(make_cpu_backend());
  const Buffer buffer = device.buffer_of({1, 2});
  const Tensor two = buffer.view({2}, ElementType::f32);
  EXPECT_THROW(device.backend().sgd_step(device.stream(), {two, two, {}, 0.1f, 0.9f}), Error);
}

}  // namespace
}  // namespace tutti::testing_support
