
#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"

#include "arguments.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <utility>

namespace tutti {
namespace {

class SoloWorld final : public World {
 public:
  SoloWorld() : World(host_name()) {}

  std::string description() const override { return "no launcher"; }

  bool all_true(bool mine) override { return mine; }
  void start_max(std::int64_t mine) override {
    if (max_) throw Error(ErrorSource::internal, "start_max is already pending");
    max_ = mine;
  }
  std::int64_t finish_max() override {
    if (!max_) throw Error(ErrorSource::internal, "finish_max without a start_max");
    return *std::exchange(max_, std::nullopt);
  }
  void barrier() override {}

  void broadcast(std::span<std::byte>, int root) override {
    if (root != 0) {
      throw Error(ErrorSource::internal, fmt::format("broadcast from rank {} in a world of 1 rank", root));
    }
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return {std::vector<std::byte>(mine.begin(), mine.end())};
  }

  GrowingMemory begin_node_memory() override { return {}; }
  Buffer share(GrowingMemory memory) override { return memory.take(); }
  void node_barrier() override {}

  std::unique_ptr<World> split(int color) override { return color < 0 ? nullptr : make_solo_world(); }

  [[noreturn]] void abort(int status) noexcept override { std::_Exit(status); }
  void close() override { max_.reset(); }

 private:
  std::optional<std::int64_t> max_;  // between start_max and finish_max
};

class SoloCommunicator final : public Communicator {
 public:
  explicit SoloCommunicator(Backend* processor) : processor_(processor) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string description() const override { return "solo"; }

  Buffer allocate(std::size_t bytes) override {
    return processor_ == nullptr ? allocate_host(bytes) : processor_->allocate(bytes);
  }
  void all_reduce(const Tensor& values, Stream&) override { require_summable(values, space()); }
  void reduce_scatter_gather(const ReduceScatterGather& request, Stream& stream) override {
    require_valid_shards(request, 1, space());
    transform_piece(request, shard_of(request, 0), stream);
  }
  void reduce_to_root(const Tensor& values, Stream&) override { require_summable(values, space()); }
  void broadcast(const Tensor& values, Stream&) override { require_sendable(values, space()); }
  bool progress() override { return false; }
  void finish(Stream&) override {}
  void abort() noexcept override {}
  std::uint64_t bytes_sent() const override { return 0; }

 private:
  MemorySpace space() const { return processor_ == nullptr ? MemorySpace::host : processor_->memory_space(); }

  Backend* processor_;
};

}  // namespace

std::unique_ptr<World> make_solo_world() { return std::make_unique<SoloWorld>(); }

std::unique_ptr<Communicator> make_solo_communicator(Backend* processor) {
  return std::make_unique<SoloCommunicator>(processor);
}

}  // namespace tutti
