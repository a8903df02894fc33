#include "tutti/comm/communicator.hpp"

#include "host_memory.hpp"

namespace tutti {
namespace {

class SoloCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string description() const override { return "solo"; }

  Buffer allocate(std::size_t bytes) override { return allocate_host_memory(bytes); }
  void all_reduce_sum(const Tensor& values, Stream&) override { require_summable_on_host(values); }
  bool progress() override { return false; }
  void finish(Stream&) override {}
  void abandon() noexcept override {}
  std::uint64_t bytes_sent() const override { return 0; }
};

}  // namespace

std::unique_ptr<Communicator> make_solo_communicator() { return std::make_unique<SoloCommunicator>(); }

}  // namespace tutti
