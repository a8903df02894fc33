#include "tensorboard_log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <string_view>

namespace tutti {
namespace {

// Fields of protocol buffers: a key of number and kind, and a value.
class Message {
 public:
  Message& integer(unsigned field, std::uint64_t value) {
    key(field, 0);
    variable_length(value);
    return *this;
  }
  Message& real(unsigned field, double value) {
    key(field, 1);
    fixed(std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& bytes(unsigned field, std::string_view value) {
    key(field, 2);
    variable_length(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(unsigned field, const Message& value) { return bytes(field, value.bytes_); }
  Message& short_real(unsigned field, float value) {
    key(field, 5);
    fixed(std::bit_cast<std::uint32_t>(value));
    return *this;
  }

  const std::string& text() const { return bytes_; }

 private:
  void key(unsigned field, unsigned kind) { variable_length(field << 3 | kind); }
  // Seven bits a byte, the lowest first; all but the last have their highest bit set.
  void variable_length(std::uint64_t value) {
    for (; value > 0x7F; value >>= 7) bytes_ += static_cast<char>((value & 0x7F) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  template <class Bits>
  void fixed(Bits bits) {
    for (std::size_t i = 0; i < sizeof bits; ++i) bytes_ += static_cast<char>(bits >> (8 * i) & 0xFF);
  }

  std::string bytes_;
};

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

Message event(std::int64_t step) { return Message().real(1, now()).integer(2, static_cast<std::uint64_t>(step)); }

}  // namespace

TensorboardLog::TensorboardLog(const std::string& folder, const std::string& host)
    : file_(fmt::format("{}/events.out.tfevents.{:.0f}.{}.{}", folder, now(), host, ::getpid())) {
  file_.append(Message().real(1, now()).bytes(3, "brain.Event:2").text());
}

void TensorboardLog::on_begin(const RunBegin& begin) {
  constexpr unsigned kStart = 1;
  file_.append(event(begin.step + 1).message(7, Message().integer(1, kStart)).text());
}

void TensorboardLog::write(std::int64_t step, const Figures& figures) {
  Message summary;
  for (const auto& [name, value] : figures) {
    summary.message(1, Message().bytes(1, name).short_real(2, static_cast<float>(value)));
  }
  file_.append(event(step).message(5, summary).text());
}

void TensorboardLog::on_epoch(const EpochReport& report) {
  Figures figures{{"loss/train", report.train.mean_loss()},
                  {"accuracy/train", report.train.accuracy()},
                  {"lr", report.learning_rate},
                  {"images_per_second", report.images_per_second()}};
  if (report.test) {
    figures.emplace_back("loss/test", report.test->mean_loss());
    figures.emplace_back("accuracy/test", report.test->accuracy());
  }
  write(report.step, figures);
}

void TensorboardLog::on_stretch(const StretchReport& report) {
  write(report.step, {{"loss/steps", report.train.mean_loss()}, {"accuracy/steps", report.train.accuracy()}});
}

void TensorboardLog::on_time(const EpochEnd& end, const TimeReport& time) {
  const TimeShares mean = time.mean();
  Figures figures;
  for (std::size_t i = 0; i < kTimeShares; ++i) {
    const auto share = static_cast<TimeShare>(i);
    figures.emplace_back(fmt::format("time/{}", name_of(share)), mean.sum() > 0 ? mean[share] / mean.sum() : 0);
  }
  write(end.step, figures);
}

}  // namespace tutti
