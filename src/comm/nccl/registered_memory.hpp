#pragma once
// Device memory that NCCL uses without copies: allocated by NCCL, and registered as a symmetric window.

#include "tutti/backend/tensor.hpp"

#include "../arguments.hpp"
#include "connection.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace tutti::nccl {

class RegisteredMemory {
 public:
  // The connection is borrowed, and may be aborted after detach().
  RegisteredMemory(int device, const Connection& connection);
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  ~RegisteredMemory() { detach(); }

  // Zeroed. Throws a gpu_memory error if there is too little memory. The buffer may outlive this object.
  Buffer allocate(std::size_t bytes);
  // Registers the blocks of this memory that an operation is the first to use; other memory is left alone. Registration
  // is a collective of NCCL, which allocate() is not: a rank without enough memory must be able to fail alone.
  // The operation is for messages. Collective. Waits.
  void register_blocks(const OperationMemory& memory, const std::string& operation);
  // The communicator is about to be aborted: freed blocks are no longer deregistered.
  void detach() noexcept;

 private:
  struct Blocks;

  int device_;
  const Connection& connection_;
  std::shared_ptr<Blocks> blocks_;  // shared with the buffers
};

}  // namespace tutti::nccl
