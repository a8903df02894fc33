// The event file that TensorBoard reads, taken apart as its format says.

#include "tensorboard_log.hpp"

#include "tutti/storage/whole_file.hpp"

#include "support/scratch_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::StartsWith;

template <class Number>
Number take_number(std::string_view& bytes) {
  Number number{};
  if (bytes.size() < sizeof number) throw std::runtime_error("cut short");
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes.remove_prefix(sizeof number);
  return number;
}

std::string_view take(std::string_view& bytes, std::uint64_t size) {
  if (bytes.size() < size) throw std::runtime_error("cut short");
  const std::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return taken;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take_number<std::uint8_t>(bytes);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

// Fields of a message by their numbers: raw bytes of what has a length, else the bits.
struct Fields {
  std::multimap<unsigned, std::uint64_t> numbers{};
  std::multimap<unsigned, std::string_view> bytes{};
};

Fields fields_of(std::string_view message) {
  Fields fields;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    const auto field = static_cast<unsigned>(key >> 3);
    if ((key & 7) == 0) fields.numbers.emplace(field, take_varint(message));
    if ((key & 7) == 1) fields.numbers.emplace(field, take_number<std::uint64_t>(message));
    if ((key & 7) == 2) fields.bytes.emplace(field, take(message, take_varint(message)));
    if ((key & 7) == 5) fields.numbers.emplace(field, take_number<std::uint32_t>(message));
  }
  return fields;
}

struct Event {
  double seconds = 0;
  std::int64_t step = 0;
  std::string version{};
  std::optional<std::uint64_t> session{};
  std::map<std::string, float> figures{};
};

Event event_of(std::string_view message) {
  const Fields fields = fields_of(message);
  Event event{.seconds = std::bit_cast<double>(fields.numbers.find(1)->second)};
  if (fields.numbers.contains(2)) event.step = static_cast<std::int64_t>(fields.numbers.find(2)->second);
  if (fields.bytes.contains(3)) event.version = fields.bytes.find(3)->second;
  if (fields.bytes.contains(7)) event.session = fields_of(fields.bytes.find(7)->second).numbers.find(1)->second;
  if (!fields.bytes.contains(5)) return event;
  for (const auto& [number, value] : fields_of(fields.bytes.find(5)->second).bytes) {
    const Fields figure = fields_of(value);
    event.figures[std::string(figure.bytes.find(1)->second)] =
        std::bit_cast<float>(static_cast<std::uint32_t>(figure.numbers.find(2)->second));
  }
  return event;
}

std::vector<Event> events_in(const std::string& path) {
  const std::vector<std::byte> file = read_whole(path);
  std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  std::vector<Event> events;
  while (!bytes.empty()) {
    const auto length = take_number<std::uint64_t>(bytes);
    take(bytes, 4);
    events.push_back(event_of(take(bytes, length)));
    take(bytes, 4);
  }
  return events;
}

std::string only_file_in(const ScratchFolder& folder) {
  EXPECT_EQ(folder.entries(), 1u);
  return std::filesystem::directory_iterator(folder.path())->path();
}

EpochReport epoch_report() {
  return {.epoch = 2,
          .epochs = 5,
          .step = 300,
          .train = {.loss_steps = 3 << 24, .correct = 3, .samples = 4},
          .test = LossSums{.loss_steps = 1 << 24, .correct = 1, .samples = 2},
          .seconds = 0.5,
          .learning_rate = 0.1};
}

TEST(TensorboardLog, HoldsTheFiguresOfEveryReport) {
  const ScratchFolder folder;
  {
    TensorboardLog log(folder.path(), "n1");
    log.on_begin({.record = "{}", .step = 0});
    log.on_stretch({.step = 50, .train = {.loss_steps = 1 << 23, .correct = 1, .samples = 1}, .learning_rate = 0.1});
    log.on_epoch(epoch_report());
    TimeReport time;
    time.ranks.resize(2);
    time.ranks[0][TimeShare::compute] = 3;
    time.ranks[1][TimeShare::compute] = 1;
    time.ranks[1][TimeShare::waiting] = 2;
    log.on_time({.epoch = 2, .step = 300}, time);
  }
  const std::string path = only_file_in(folder);
  EXPECT_THAT(std::filesystem::path(path).filename().string(), StartsWith("events.out.tfevents."));
  const auto events = events_in(path);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].session, 1u);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].step, 50);
  EXPECT_THAT(events[2].figures, ElementsAre(Pair("accuracy/steps", 1.0f), Pair("loss/steps", 0.5f)));
  EXPECT_EQ(events[3].step, 300);
  EXPECT_THAT(events[3].figures,
              ElementsAre(Pair("accuracy/test", 0.5f), Pair("accuracy/train", 0.75f), Pair("images_per_second", 8.0f),
                          Pair("loss/test", 0.5f), Pair("loss/train", 0.75f), Pair("lr", 0.1f)));
  EXPECT_THAT(events[4].figures, ElementsAre(Pair("time/checkpoint", 0), Pair("time/communication", 0),
                                             Pair("time/compute", static_cast<float>(2.0 / 3)), Pair("time/data", 0),
                                             Pair("time/evaluation", 0), Pair("time/other", 0),
                                             Pair("time/waiting", static_cast<float>(1.0 / 3))));
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (std::size_t i = 1; i < events.size(); ++i) EXPECT_GE(events[i].seconds, events[i - 1].seconds);
  EXPECT_GT(events.front().seconds, 1.7e9);
  EXPECT_LE(events.back().seconds, now);
}

TEST(TensorboardLog, OfARunThatGoesOnLeavesLaterStepsOfEarlierFilesBehind) {
  const ScratchFolder folder;
  TensorboardLog(folder.path(), "n1").on_begin({.record = "{}", .step = 200});
  EXPECT_EQ(events_in(only_file_in(folder)).at(1).step, 201);
}

TEST(TensorboardLog, LeavesTestFiguresOutWhereThereAreNone) {
  const ScratchFolder folder;
  EpochReport report = epoch_report();
  report.test.reset();
  TensorboardLog(folder.path(), "n1").on_epoch(report);
  EXPECT_EQ(events_in(only_file_in(folder)).at(1).figures.size(), 4u);
}

}  // namespace
}  // namespace tutti
