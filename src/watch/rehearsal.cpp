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

// What happens to a rank's sums in the current step.
struct Rehearsal::LinkFaults {
  bool loses(std::int64_t sum) const { return lost_sum && *lost_sum == sum; }
  // The time on the way to the other ranks.
  std::int64_t time_ns(std::size_t bytes) const {
    if (slow == nullptr) return 0;
    const double seconds = slow->mbps > 0 ? static_cast<double>(bytes) * 8 / (slow->mbps * 1e6) : slow->seconds;
    return static_cast<std::int64_t>(seconds * 1e9);
  }

  std::int64_t sums_of_step = 0;           // so far
  std::optional<std::int64_t> lost_sum{};  // of those
  const Incident* slow = nullptr;
};

namespace {

constexpr std::chrono::milliseconds kNap{1};
constexpr std::chrono::milliseconds kStill{50};

class RehearsedCommunicator final : public Communicator {
 public:
  RehearsedCommunicator(std::unique_ptr<Communicator> inner, Rehearsal::LinkFaults& faults)
      : inner_(std::move(inner)), faults_(faults) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string description() const override { return inner_->description(); }
  std::vector<SumThreshold> thresholds() const override { return inner_->thresholds(); }
  Buffer allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  std::uint64_t bytes_sent() const override { return inner_->bytes_sent(); }

  void all_reduce(const Tensor& values, Stream& stream) override {
    send(values.bytes(), [this, values, &stream] { inner_->all_reduce(values, stream); });
  }
  void reduce_scatter_gather(const ShardedSum& sum, Stream& stream) override {
    const std::size_t bytes =
        (sum.values.data == nullptr ? 0 : sum.values.bytes()) + (sum.results.data == nullptr ? 0 : sum.results.bytes());
    send(bytes, [this, sum, &stream] { inner_->reduce_scatter_gather(sum, stream); });
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

  // Ranks match their sums by order, so that after a lost one none gets through.
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
  Rehearsal::LinkFaults& faults_;
  std::deque<Held> held_;
  std::int64_t free_at_ns_ = 0;
  bool lost_ = false;
};

Phase begins_in(const Incident& incident) {
  switch (incident.kind) {
    case IncidentKind::kill:
    case IncidentKind::stop:
    case IncidentKind::delay:
      return incident.phase;
    case IncidentKind::flip:
      return incident.flip.of == "gradients" ? Phase::update : Phase::reports;
    case IncidentKind::drop_bucket:
    case IncidentKind::slow_link:
      return Phase::data;
  }
  return incident.phase;
}

}  // namespace

Rehearsal::Rehearsal(const Log& log) : log_(log), link_(std::make_unique<LinkFaults>()) {}
Rehearsal::~Rehearsal() = default;

std::unique_ptr<Communicator> Rehearsal::between(std::unique_ptr<Communicator> communicator) {
  return std::make_unique<RehearsedCommunicator>(std::move(communicator), *link_);
}

void Rehearsal::begin(const std::vector<Incident>& incidents, Flip flip) {
  flip_ = std::move(flip);
  for (const Incident& incident : incidents) {
    if (incident.rank == log_.rank()) planned_.push_back({.incident = incident});
  }
  on_begin({});
}

std::vector<Incident> Rehearsal::missed() const {
  std::vector<Incident> missed;
  for (const Planned& planned : planned_) {
    if (!planned.done_to) missed.push_back(planned.incident);
  }
  return missed;
}

bool Rehearsal::is_due(const Planned& planned, const StepPhase& at) {
  const Incident& incident = planned.incident;
  if (at.phase != begins_in(incident) || at.step < incident.first_step) return false;
  if (!planned.done_to) return true;  // not every step comes to every phase
  return at.step > *planned.done_to && at.step <= incident.last_step;
}

void Rehearsal::on_begin(const StepPhase& at) {
  if (at.phase == Phase::data) *link_ = {};
  for (Planned& planned : planned_) {
    if (!is_due(planned, at)) continue;
    if (!planned.done_to) {
      log_.warn(fmt::format("rehearsal, now in step {}: {}", at.step, text_of(planned.incident)));
    }
    planned.done_to = at.step;
    happen(planned.incident);
  }
}

void Rehearsal::happen(const Incident& incident) {
  switch (incident.kind) {
    case IncidentKind::kill:
      ::kill(::getpid(), SIGKILL);
      break;
    case IncidentKind::stop:
      ::kill(::getpid(), SIGSTOP);
      break;
    case IncidentKind::delay:
      std::this_thread::sleep_for(std::chrono::duration<double>(incident.seconds));
      break;
    case IncidentKind::flip:
      flip_(incident.flip);
      break;
    case IncidentKind::drop_bucket:
      link_->lost_sum = incident.bucket;
      break;
    case IncidentKind::slow_link:
      link_->slow = &incident;
      break;
  }
}

}  // namespace tutti
