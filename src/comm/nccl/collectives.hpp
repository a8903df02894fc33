#pragma once
// What ranks exchange, as calls of NCCL on a stream. Each returns how many bytes of payload this rank sends: what it
// would in a ring where NCCL chooses the way. Values have been checked, and there are some. All collective and
// asynchronous, but that a call is waited for until it is on the stream.

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/comm/communicator.hpp"

#include "connection.hpp"

#include <cstdint>
#include <string>

namespace tutti::nccl {

struct Exchange {
  const Connection& connection;
  CudaStream& stream;
  const std::string& name;  // for messages

  std::uint64_t all_reduce(const Tensor& values) const;
  std::uint64_t reduce_scatter_gather(const ShardedSum& sum) const;
  std::uint64_t reduce_to_root(const Tensor& values) const;
  std::uint64_t broadcast(const Tensor& values) const;

 private:
  std::uint64_t reduce_scatter(const ShardedSum& sum) const;
  std::uint64_t all_gather(const ShardedSum& sum) const;
  void add_other_ranks(const Tensor& piece) const;
  cudaStream_t native() const { return static_cast<cudaStream_t>(stream.native()); }
};

}  // namespace tutti::nccl
