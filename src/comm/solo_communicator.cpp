#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"

#include "arguments.hpp"
#include "host_memory.hpp"

namespace tutti {
namespace {

class SoloCommunicator final : public Communicator {
 public:
  explicit SoloCommunicator(Backend* processor) : processor_(processor) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string description() const override { return "solo"; }

  Buffer allocate(std::size_t bytes) override {
    return processor_ == nullptr ? allocate_host(bytes) : processor_->allocate(bytes);
  }
  void all_reduce_sum(const Tensor& values, Stream&) override { require_summable(values, space()); }
  void share(const SharedSum& sum, Stream& stream) override {
    require_share(sum, 1, space());
    work_on(sum, share_of(sum, 0), stream);
  }
  void sum_at_first(const Tensor& values, Stream&) override { require_summable(values, space()); }
  void spread_from_first(const Tensor& values, Stream&) override { require_passable(values, space()); }
  bool progress() override { return false; }
  void finish(Stream&) override {}
  void abandon() noexcept override {}
  std::uint64_t bytes_sent() const override { return 0; }

 private:
  MemorySpace space() const { return processor_ == nullptr ? MemorySpace::host : processor_->memory_space(); }

  Backend* processor_;
};

}  // namespace

std::unique_ptr<Communicator> make_solo_communicator(Backend* processor) {
  return std::make_unique<SoloCommunicator>(processor);
}

}  // namespace tutti
