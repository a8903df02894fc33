#include "rehearsed_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <utility>

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kNap{1};
constexpr std::chrono::milliseconds kStill{50};

class RehearsedCommunicator final : public Communicator {
 public:
  RehearsedCommunicator(std::unique_ptr<Communicator> inner, LinkFaults& faults)
      : inner_(std::move(inner)), faults_(faults) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string description() const override { return inner_->description(); }
  std::vector<SumThreshold> thresholds() const override { return inner_->thresholds(); }
  Buffer allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  std::uint64_t bytes_sent() const override { return inner_->bytes_sent(); }

  void all_reduce_sum(const Tensor& values, Stream& stream) override {
    send(values.bytes(), [this, values, &stream] { inner_->all_reduce_sum(values, stream); });
  }
  void share(const SharedSum& sum, Stream& stream) override {
    const std::size_t bytes =
        (sum.values.data == nullptr ? 0 : sum.values.bytes()) + (sum.results.data == nullptr ? 0 : sum.results.bytes());
    send(bytes, [this, sum, &stream] { inner_->share(sum, stream); });
  }
  void reduce_to_root(const Tensor& values, Stream& stream) override {
    send(values.bytes(), [this, values, &stream] { inner_->reduce_to_root(values, stream); });
  }
  void broadcast(const Tensor& values, Stream& stream) override {
    send(values.bytes(), [this, values, &stream] { inner_->broadcast(values, stream); });
  }

  bool progress() override {
    release();
    return inner_->progress() || !held_.empty();
  }

  void finish(Stream& stream) override {
    for (release(); lost_ || !held_.empty(); release()) {
      inner_->progress();
      std::this_thread::sleep_for(lost_ ? kStill : kNap);
    }
    inner_->finish(stream);
  }

  void abandon() noexcept override {
    held_.clear();
    inner_->abandon();
  }

 private:
  struct Held {
    std::int64_t until_ns;
    std::function<void()> begin;
  };

  // Sums meet their peers in order, so that after a lost one none gets through.
  void send(std::size_t bytes, std::function<void()> begin) {
    lost_ = lost_ || faults_.loses(faults_.sums_of_step++);
    if (lost_) return;
    free_at_ns_ = std::max(free_at_ns_, now_ns()) + faults_.time_ns(bytes);
    held_.push_back({free_at_ns_, std::move(begin)});
    release();
  }

  void release() {
    while (!held_.empty() && held_.front().until_ns <= now_ns()) {
      const Held next = std::move(held_.front());
      held_.pop_front();
      next.begin();
    }
  }

  std::unique_ptr<Communicator> inner_;
  LinkFaults& faults_;
  std::deque<Held> held_;
  std::int64_t free_at_ns_ = 0;
  bool lost_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_rehearsed_communicator(std::unique_ptr<Communicator> inner, LinkFaults& faults) {
  return std::make_unique<RehearsedCommunicator>(std::move(inner), faults);
}

}  // namespace tutti
