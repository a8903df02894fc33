#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"

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
    return processor_ == nullptr ? allocate_host_memory(bytes) : processor_->allocate(bytes);
  }
  void all_reduce_sum(const Tensor& values, Stream&) override { require_summable(values, space()); }
  void share(const SharedSum& sum, Stream& stream) override {
    if (sum.then && sum.bounds.back() > 0) sum.then(stream, 0, sum.bounds.back());
  }
  void sum_at_first(const Tensor&, Stream&) override {}
  void spread_from_first(const Tensor&, Stream&) override {}
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
