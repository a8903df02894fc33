#pragma once
// A simulated device with its own memory and streams that only holds data. Operations are executed late, and the order
// across streams is drawn from a seed, so that code that forgets to wait reads wrong data. One thread may enqueue.

#include "support/memory_backend.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace tutti::testing_support {

// Injected faults, with which tests prove that they detect them.
struct LateFaults {
  std::optional<int> lost_wait_event{};  // of every two calls of Stream::wait_event(), this one does nothing
  bool lost_awaits = false;
};

class LateDevice : public MemoryBackend {
 public:
  explicit LateDevice(unsigned seed, const LateFaults& faults = {}) : random_(seed), faults_(faults) {}

  // Makes image stores from now on.
  std::function<std::unique_ptr<ImageStore>(LateDevice&, const ImageSet&)> make_store;

  void enqueue(Stream& stream, std::function<void()> work) {
    push(dynamic_cast<LateStream&>(stream), [this, work = std::move(work)] {
      work();
      ++done_;
    });
  }

  MemorySpace memory_space() const override { return MemorySpace::cuda; }
  Buffer allocate_staging(std::size_t bytes) override { return allocate_in(MemorySpace::host, bytes); }
  std::unique_ptr<Stream> make_stream() override {
    auto stream = std::make_unique<LateStream>(*this);
    streams_.push_back(stream.get());
    return stream;
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<LateEvent>(); }
  std::unique_ptr<Event> make_timed_event() override { return std::make_unique<LateEvent>(); }
  std::unique_ptr<ImageStore> upload_dataset(const ImageSet& images) override {
    return make_store ? make_store(*this, images) : nullptr;
  }
  void copy(Stream& stream, const Tensor& to, const Tensor& from) override {
    if (to.bytes() != from.bytes()) refuse();
    enqueue(stream, [to, from] { std::memcpy(to.data, from.data, to.bytes()); });
  }

 private:
  struct Marks {
    std::int64_t marked = 0;
    std::int64_t reached = 0;
    std::int64_t reached_after = 0;  // operations of the device
  };
  struct LateEvent : Event {
    bool reached() override { return marks->reached >= marks->marked; }
    // An operation takes a second.
    double seconds_since(const Event& earlier) override {
      const auto before = dynamic_cast<const LateEvent&>(earlier).marks->reached_after;
      return static_cast<double>(marks->reached_after - before);
    }
    std::shared_ptr<Marks> marks = std::make_shared<Marks>();
  };
  struct Operation {
    std::function<bool()> may_begin;
    std::function<void()> work;
  };
  struct LateStream : Stream {
    explicit LateStream(LateDevice& of) : device(of) {}
    ~LateStream() override { std::erase(device.streams_, this); }
    void synchronize() override {
      while (!queue.empty()) device.work_once();
    }
    void record(Event& event) override {
      const auto marks = dynamic_cast<LateEvent&>(event).marks;
      device.push(*this, [&done = device.done_, marks, mark = ++marks->marked] {
        marks->reached = mark;
        marks->reached_after = done;
      });
    }
    void wait_event(const Event& event) override {
      if (device.waits_++ % 2 == device.faults_.lost_wait_event) return;
      const auto marks = dynamic_cast<const LateEvent&>(event).marks;
      queue.push_back({[marks, mark = marks->marked] { return marks->reached >= mark; }, [] {}});
    }
    void await(Event& event) override {
      while (!device.faults_.lost_awaits && !event.reached()) device.work_once();
    }
    LateDevice& device;
    std::deque<Operation> queue;
  };

  void push(LateStream& stream, std::function<void()> work) {
    stream.queue.push_back({[] { return true; }, std::move(work)});
    while (random_() % 3 == 0 && work_once()) {
    }
  }

  // Executes the head of one queue. Returns false when no head may begin.
  bool work_once() {
    std::ranges::shuffle(streams_, random_);
    const auto stream = std::ranges::find_if(
        streams_, [](const LateStream* each) { return !each->queue.empty() && each->queue.front().may_begin(); });
    if (stream == streams_.end()) return false;
    const Operation operation = std::move((*stream)->queue.front());
    (*stream)->queue.pop_front();
    operation.work();
    return true;
  }

  std::mt19937 random_;
  LateFaults faults_;
  int waits_ = 0;          // calls of Stream::wait_event()
  std::int64_t done_ = 0;  // executed operations
  std::vector<LateStream*> streams_;
};

}  // namespace tutti::testing_support
