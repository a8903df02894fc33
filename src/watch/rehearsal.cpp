#include "tutti/watch/rehearsal.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <deque>
#include <thread>
#include <utility>

namespace tutti {

class RehearsedCommunicator final : public Communicator {
 public:
  RehearsedCommunicator(std::unique_ptr<Communicator> inner, FaultInjector& faults)
      : inner_(std::move(inner)), faults_(faults) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string description() const override { return inner_->description(); }
  std::vector<AllReduceThreshold> thresholds() const override { return inner_->thresholds(); }
  Buffer allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  std::uint64_t bytes_sent() const override { return inner_->bytes_sent(); }

  void all_reduce(const Tensor& values, Stream& stream) override {
    send(bytes_of(values), [this, values, &stream] { inner_->all_reduce(values, stream); });
  }
  void reduce_scatter_gather(const ReduceScatterGather& request, Stream& stream) override {
    send(bytes_of(request.values) + bytes_of(request.results),
         [this, request, &stream] { inner_->reduce_scatter_gather(request, stream); });
  }
  void reduce_to_root(const Tensor& values, Stream& stream) override {
    send(bytes_of(values), [this, values, &stream] { inner_->reduce_to_root(values, stream); });
  }
  void broadcast(const Tensor& values, Stream& stream) override {
    send(bytes_of(values), [this, values, &stream] { inner_->broadcast(values, stream); });
  }

  bool progress() override {
    release();
    return inner_->progress() || !held_.empty();
  }

  void finish(Stream& stream) override {
    for (release(); has_dropped_ || !held_.empty(); release()) {
      inner_->progress();
      std::this_thread::sleep_for(std::chrono::milliseconds(has_dropped_ ? 50 : 1));
    }
    inner_->finish(stream);
  }

  void abort() noexcept override {
    held_.clear();
    inner_->abort();
  }

 private:
  struct Delayed {
    std::int64_t until_ns;
    std::function<void()> begin;
  };

  static std::size_t bytes_of(const Tensor& tensor) { return tensor.data == nullptr ? 0 : tensor.bytes(); }

  // The time that a slow link takes to send this.
  std::int64_t time_ns(std::size_t bytes) const {
    const Fault* const link = faults_.slow_link_;
    if (link == nullptr) return 0;
    const double seconds = link->mbps > 0 ? static_cast<double>(bytes) * 8 / (link->mbps * 1e6) : link->seconds;
    return static_cast<std::int64_t>(seconds * 1e9);
  }

  // Ranks match their collectives by order, so that none can complete after a dropped one.
  void send(std::size_t bytes, std::function<void()> begin) {
    has_dropped_ = has_dropped_ || faults_.dropped_ == faults_.collectives_++;
    if (has_dropped_) return;
    free_at_ns_ = std::max(free_at_ns_, now_ns()) + time_ns(bytes);
    held_.push_back({free_at_ns_, std::move(begin)});
    release();
  }

  void release() {
    while (!held_.empty() && held_.front().until_ns <= now_ns()) {
      const Delayed next = std::move(held_.front());
      held_.pop_front();
      next.begin();
    }
  }

  std::unique_ptr<Communicator> inner_;
  FaultInjector& faults_;
  std::deque<Delayed> held_;
  std::int64_t free_at_ns_ = 0;
  bool has_dropped_ = false;
};

std::unique_ptr<Communicator> FaultInjector::wrap(std::unique_ptr<Communicator> communicator) {
  return std::make_unique<RehearsedCommunicator>(std::move(communicator), *this);
}

void FaultInjector::begin(const std::vector<Fault>& faults, Flip flip) {
  flip_ = std::move(flip);
  for (const Fault& fault : faults) {
    if (fault.rank != log_.rank()) continue;
    (fault.kind == FaultKind::wrong ? wrong_ : planned_).push_back({.fault = fault});
  }
  on_begin({});
}

std::vector<Fault> FaultInjector::untriggered() const {
  std::vector<Fault> untriggered;
  for (const auto* faults : {&planned_, &wrong_}) {
    for (const Planned& planned : *faults) {
      if (!planned.last_injected) untriggered.push_back(planned.fault);
    }
  }
  return untriggered;
}

bool FaultInjector::is_due(const Planned& planned, const StepPhase& at) {
  const Fault& fault = planned.fault;
  const bool of_link = fault.kind == FaultKind::drop_bucket || fault.kind == FaultKind::slow_link;
  Phase trigger = of_link ? Phase::data : fault.phase;
  if (fault.kind == FaultKind::flip) trigger = fault.flip.block == "gradients" ? Phase::update : Phase::reports;
  if (at.phase != trigger || at.step < fault.first_step) return false;
  if (!planned.last_injected) return true;  // not every step has every phase
  return at.step > *planned.last_injected && at.step <= fault.last_step;
}

void FaultInjector::on_begin(const StepPhase& at) {
  step_ = at.step;
  if (at.phase == Phase::data) {
    collectives_ = 0;
    dropped_.reset();
    slow_link_ = nullptr;
  }
  for (Planned& planned : planned_) {
    if (!is_due(planned, at)) continue;
    if (!planned.last_injected) {
      log_.warn(fmt::format("rehearsal (step {}): {}", at.step, text_of(planned.fault)));
    }
    planned.last_injected = at.step;
    inject(planned.fault);
  }
}

void FaultInjector::inject(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kill:
      ::kill(::getpid(), SIGKILL);
      break;
    case FaultKind::stop:
      ::kill(::getpid(), SIGSTOP);
      break;
    case FaultKind::delay:
      std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
      break;
    case FaultKind::flip:
      flip_(fault.flip);
      break;
    case FaultKind::drop_bucket:
      dropped_ = fault.bucket;
      break;
    case FaultKind::slow_link:
      slow_link_ = &fault;
      break;
    case FaultKind::wrong:
      break;  // falsify() injects it
  }
}

}  // namespace tutti
