#include "part_sum.hpp"

#include <algorithm>

namespace tutti {

PartSum::PartSum(GradientTotal& total, Streams streams) : total_(total), streams_(streams) {}

void PartSum::begin(std::size_t parts) {
  const std::scoped_lock lock(mutex_);
  added_.assign(parts, 0);
  failure_ = nullptr;
}

void PartSum::add(Stream& stream, const PartGradients& part, std::int64_t final_elements) {
  std::int64_t begin = 0;
  std::int64_t end = final_elements;
  {
    const std::scoped_lock lock(mutex_);
    begin = added_[part.number];
    if (part.number > 0) end = std::min(end, added_[part.number - 1]);
  }
  if (begin >= end) return;
  total_.add(stream, part, {begin, end});
  if (streams_ == Streams::several) stream.synchronize();  // the next part's work may lie on another
  {
    const std::scoped_lock lock(mutex_);
    added_[part.number] = end;
  }
  changed_.notify_all();
}

void PartSum::finish(Stream& stream, const PartGradients& part) {
  const std::int64_t whole = total_.gradients().elements();
  while (true) {
    add(stream, part, whole);
    std::unique_lock lock(mutex_);
    const std::int64_t mine = added_[part.number];
    if (mine == whole) return;
    changed_.wait(lock, [&] { return added_[part.number - 1] > mine || failure_ != nullptr; });
    if (failure_) std::rethrow_exception(failure_);
  }
}

std::int64_t PartSum::complete() {
  const std::scoped_lock lock(mutex_);
  return added_.back();
}

std::int64_t PartSum::await_more_than(std::int64_t known) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return added_.back() > known || failure_ != nullptr; });
  if (failure_) std::rethrow_exception(failure_);
  return added_.back();
}

void PartSum::abandon(std::exception_ptr failure) {
  {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  changed_.notify_all();
}

}  // namespace tutti
