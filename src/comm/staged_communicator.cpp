#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"

#include "patience.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace tutti {
namespace {

// Host memory is ready when it is given away.
class HostStream final : public Stream {
 public:
  void synchronize() override {}
};

// Staging memory and the points at which a sum may go on.
struct Place {
  Buffer staging;
  std::unique_ptr<Event> ready;     // this rank's values are there
  std::unique_ptr<Event> left;      // they are in the staging memory
  std::unique_ptr<Event> returned;  // the sums are back
};

enum class Stage { waiting, leaving, summing, returning };

struct Sum {
  Tensor values;
  Tensor staged;
  Place place;
  Stage stage = Stage::waiting;
};

bool overlap(const Tensor& one, const Tensor& other) {
  const std::less<const std::byte*> before;
  const auto* const begin = static_cast<const std::byte*>(one.data);
  const auto* const other_begin = static_cast<const std::byte*>(other.data);
  return before(begin, other_begin + other.bytes()) && before(other_begin, begin + one.bytes());
}

// One sum after the other over the ranks, while the next is copied out and the last one back.
class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(Backend& backend, std::unique_ptr<Communicator> host)
      : backend_(backend), host_(std::move(host)), out_(backend.make_stream()), back_(backend.make_stream()) {}
  ~StagedCommunicator() override { leave_no_copies(); }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string description() const override { return host_->description() + ", staged in host memory"; }
  Buffer allocate(std::size_t bytes) override { return backend_.allocate(bytes); }

  void all_reduce_sum(const Tensor& values, Stream& stream) override {
    if (values.type != ElementType::f32 && values.type != ElementType::i64) {
      throw Error(ErrorSource::internal, fmt::format("sums of {} are not provided for", name_of(values.type)));
    }
    if (values.space != backend_.memory_space()) {
      throw Error(ErrorSource::internal, "a sum is staged for memory of another processor");
    }
    if (size() == 1 || values.elements() == 0) return;
    const std::lock_guard lock(mutex_);
    Sum sum{.values = values, .staged = {}, .place = place_of(values.bytes())};
    sum.staged = sum.place.staging.view(values.shape, values.type);
    stream.record(*sum.place.ready);
    sums_.push_back(std::move(sum));
    drive();
  }

  void share(const SharedSum&, Stream&) override { throw Error(ErrorSource::internal, "unfinished"); }
  void sum_at_first(const Tensor&, Stream&) override { throw Error(ErrorSource::internal, "unfinished"); }
  void spread_from_first(const Tensor&, Stream&) override { throw Error(ErrorSource::internal, "unfinished"); }

  bool progress() override {
    const std::lock_guard lock(mutex_);
    return drive();
  }

  void finish(Stream& stream) override {
    for (Patience patience(kUntilMoved); progress(); patience.wait()) {
      const std::lock_guard lock(mutex_);
      // It knows best how to wait for its ranks.
      if (is_summing()) host_->finish(host_stream_);
    }
    const std::lock_guard lock(mutex_);
    if (!sums_.empty()) stream.follow(*sums_.back().place.returned);
  }

  void abandon() noexcept override {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    host_->abandon();
    leave_no_copies();
  }

  std::uint64_t bytes_sent() const override { return host_->bytes_sent(); }

 private:
  // The smallest that will do, so that every step finds the places of the one before.
  Place place_of(std::size_t bytes) {
    auto best = free_.end();
    for (auto place = free_.begin(); place != free_.end(); ++place) {
      if (place->staging.bytes() < bytes) continue;
      if (best == free_.end() || place->staging.bytes() < best->staging.bytes()) best = place;
    }
    if (best == free_.end()) {
      return {.staging = backend_.allocate_staging(bytes),
              .ready = backend_.make_event(),
              .left = backend_.make_event(),
              .returned = backend_.make_event()};
    }
    Place place = std::move(*best);
    free_.erase(best);
    return place;
  }

  // False when all sums are at least on their way back.
  bool drive() {
    if (abandoned_) return false;
    while (!sums_.empty() && sums_.front().stage == Stage::returning && sums_.front().place.returned->reached()) {
      free_.push_back(std::move(sums_.front().place));
      sums_.pop_front();
    }
    for (auto sum = sums_.begin(); sum != sums_.end(); ++sum) {
      if (sum->stage == Stage::waiting && !leave(*sum)) break;
    }
    const auto next =
        std::find_if(sums_.begin(), sums_.end(), [](const Sum& s) { return s.stage != Stage::returning; });
    if (next == sums_.end()) return false;
    if (next->stage == Stage::leaving && next->place.left->reached()) {
      host_->all_reduce_sum(next->staged, host_stream_);
      next->stage = Stage::summing;
    }
    if (next->stage != Stage::summing || host_->progress()) return true;
    host_->finish(host_stream_);  // for what it throws: nothing is left to wait for
    backend_.copy(*back_, next->values, next->staged);
    back_->record(*next->place.returned);
    next->stage = Stage::returning;
    return std::next(next) != sums_.end();
  }

  bool is_summing() const {
    return std::any_of(sums_.begin(), sums_.end(), [](const Sum& sum) { return sum.stage == Stage::summing; });
  }

  // Sums over the same memory take what earlier ones have left there.
  bool leave(Sum& sum) {
    for (const Sum& earlier : sums_) {
      if (&earlier == &sum) break;
      if (!overlap(earlier.values, sum.values)) continue;
      if (earlier.stage != Stage::returning) return false;
      out_->follow(*earlier.place.returned);
    }
    out_->follow(*sum.place.ready);
    backend_.copy(*out_, sum.staged, sum.values);
    out_->record(*sum.place.left);
    sum.stage = Stage::leaving;
    return true;
  }

  // Copies wait for nothing but this processor.
  void leave_no_copies() noexcept {
    try {
      out_->synchronize();
      back_->synchronize();
    } catch (const std::exception&) {
      // A processor that failed copies no more.
    }
  }

  Backend& backend_;
  std::unique_ptr<Communicator> host_;
  HostStream host_stream_;
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Stream> back_;

  std::mutex mutex_;  // guards all that follows
  std::deque<Sum> sums_;
  std::vector<Place> free_;
  bool abandoned_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(Backend& backend, std::unique_ptr<Communicator> host) {
  return std::make_unique<StagedCommunicator>(backend, std::move(host));
}

}  // namespace tutti
