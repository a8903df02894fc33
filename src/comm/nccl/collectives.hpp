#pragma once
// What ranks exchange, as calls of NCCL on a stream. Each returns how many bytes of payload this rank sends: what a ring
// would where NCCL chooses the way. All collective and asynchronous, but that a call waits until it is enqueued.

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/comm/communicator.hpp"

#include "connection.hpp"

#include <cstdint>
#include <initializer_list>
#include <string>

namespace tutti::nccl {

inline constexpr std::initializer_list<ElementType> kSummable = {ElementType::f32, ElementType::i64};
inline constexpr std::initializer_list<ElementType> kSendable = {ElementType::f32, ElementType::i32, ElementType::f64,
                                                                 ElementType::i64};

// Throw an internal error for other types, memory of the host, and shares that are not all there.
void require(const Tensor& values, std::initializer_list<ElementType> types);
void require_shares(const SharedSum& sum, int ranks);

struct Exchange {
  const Connection& connection;
  CudaStream& stream;
  const std::string& name;  // for messages

  std::uint64_t all_reduce_sum(const Tensor& values) const;
  std::uint64_t share(const SharedSum& sum) const;
  std::uint64_t sum_at_first(const Tensor& values) const;
  std::uint64_t spread_from_first(const Tensor& values) const;

 private:
  std::uint64_t sum_shares(const SharedSum& sum) const;
  std::uint64_t spread_shares(const SharedSum& sum) const;
  void add_other_ranks(const Tensor& piece) const;
  cudaStream_t native() const { return static_cast<cudaStream_t>(stream.native()); }
};

}  // namespace tutti::nccl
