#pragma once
// Collectives as NCCL calls on a stream.

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/backend/tensor.hpp"
#include "tutti/comm/communicator.hpp"

#include "connection.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::nccl {

// Each function returns the payload bytes that this rank sends, assuming a ring where NCCL chooses the algorithm. The
// values have been checked and are not empty. All functions are collective and asynchronous; they return when the calls
// are on the stream.
struct NcclCalls {
  const Connection& connection;
  CudaStream& stream;
  const std::string& name;  // for messages

  std::uint64_t all_reduce(const Tensor& values) const;
  std::uint64_t reduce_scatter_gather(const ReduceScatterGather& request) const;
  std::uint64_t reduce_to_root(const Tensor& values) const;
  std::uint64_t broadcast(const Tensor& values) const;

 private:
  void require(ncclResult_t result) const { connection.require_success(result, name); }
  cudaStream_t native() const { return static_cast<cudaStream_t>(stream.native()); }
  // One call can handle shards of equal length, except a remainder of the last one. A remainder, or shards of different
  // lengths, need a call each.
  template <class CallForAll, class CallForOne>
  void call_for_shards(const std::vector<std::int64_t>& bounds, const Tensor& tensor, const CallForAll& call_for_all,
                       const CallForOne& call_for_one) const;
  void add_other_ranks(const Tensor& piece) const;
};

}  // namespace tutti::nccl
