#include "app/saving_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::test {
namespace {

constexpr int kCannotSave = 73;
constexpr int kCannotRead = 74;
constexpr int kKilled = 137;

// A call that the preloaded library has logged, and its outcome.
struct DiskCall {
  long number = 0;
  std::string name;
  std::string path;
  std::string outcome;
};

std::vector<DiskCall> read_calls(const std::string& log) {
  std::vector<DiskCall> calls;
  std::istringstream lines(read_text(log));
  for (DiskCall call; lines >> call.number >> call.name >> call.path && std::getline(lines, call.outcome);) {
    call.outcome.erase(0, 1);
    calls.push_back(call);
  }
  return calls;
}

struct Fault {
  std::string_view name;
  std::string_view duration;
  std::string_view words = "";  // of the system about it
};

constexpr std::array kFaults{Fault{"ENOSPC", "once", "No space left on device"},
                             Fault{"ENOSPC", "lasting", "No space left on device"},
                             Fault{"EDQUOT", "once", "Disk quota exceeded"},
                             Fault{"EDQUOT", "lasting", "Disk quota exceeded"},
                             Fault{"EIO", "once", "Input/output error"},
                             Fault{"EIO", "lasting", "Input/output error"},
                             Fault{"EINTR", "once"},
                             Fault{"EINTR", "lasting"},
                             Fault{"short", "once"},
                             Fault{"short", "lasting"},
                             Fault{"before", "once"},
                             Fault{"half", "once"},
                             Fault{"after", "once"}};

bool kills(const Fault& fault) { return fault.name == "before" || fault.name == "half" || fault.name == "after"; }

bool concerns(const Fault& fault, const DiskCall& call) {
  if (fault.name == "short" || fault.name == "half") return call.name == "write" || fault.duration == "lasting";
  return fault.name != "EINTR" || (call.name != "rename" && call.name != "unlink" && call.name != "mkdir");
}

struct FaultyRun {
  ChildResult result;
  std::vector<DiskCall> calls{};
};

FaultyRun run_on_failing_disk(const std::string& out, const std::string& plan) {
  const ScratchFolder logs;
  FaultyRun run{.result = run_saving(out, {{"LD_PRELOAD", std::getenv("TUTTI_FAILING_DISK")},
                                           {"FAILING_DISK_FOLDER", out + "/"},
                                           {"FAILING_DISK_LOG", logs.file("log")},
                                           {"FAILING_DISK_PLAN", plan}})};
  run.calls = read_calls(logs.file("log"));
  return run;
}

// Nothing is lost when close() fails for a file that was only read or is already flushed.
bool may_fail_silently(const DiskCall& call) {
  return call.name == "close" && call.path.find(".tmp.") == call.path.npos;
}

// Before every write the run checks that it still owns the folder. If that check fails with an error, it assumes so.
bool only_looks_at_lock(const DiskCall& call, const std::vector<DiskCall>& calls) {
  return call.path.ends_with("/lock") && (call.name == "open" || call.name == "pread") &&
         std::ranges::any_of(calls, [&](const DiskCall& earlier) {
           return earlier.name == "write" && earlier.path == call.path && earlier.number < call.number;
         });
}

// A failure is reported once, with the system's message and a remedy.
void expect_reported(const Fault& fault, const FaultyRun& run) {
  const auto must_be_reported = [&](const DiskCall& call) {
    return call.outcome == fault.name && !may_fail_silently(call) && !only_looks_at_lock(call, run.calls);
  };
  const bool any = std::ranges::any_of(run.calls, must_be_reported);
  const int reports = count(run.result.err, std::string(fault.words) + "; ");
  EXPECT_EQ(count(run.result.err, "\n"), reports) << run.result.err;
  if (fault.duration == "once") {
    EXPECT_EQ(reports, any ? 1 : 0) << run.result.err;
  } else {
    EXPECT_EQ(reports > 0, any) << run.result.err;
  }
  for (const char* step : {"step 2 ", "step 4 ", "step 6 "}) {
    EXPECT_LE(count(run.result.err, step + std::string("is not saved")), 1) << run.result.err;
  }
}

// The start failed to list the checkpoints.
bool failed_to_list(const std::vector<DiskCall>& calls, const Fault& fault) {
  const auto failed = std::ranges::find(calls, fault.name, &DiskCall::outcome);
  return failed != calls.end() && failed->name == "open" && failed->path.ends_with("/checkpoints") &&
         std::ranges::none_of(calls, [](const DiskCall& call) { return call.name == "rename"; });
}

bool committed(const std::vector<DiskCall>& calls) {
  return std::ranges::any_of(calls, [](const DiskCall& call) {
    return call.name == "rename" && call.path.ends_with(".json") && call.outcome == "done";
  });
}

void expect_no_work_lost(const Fault& fault, long number) {
  const ScratchFolder folder;
  const FaultyRun run = run_on_failing_disk(
      folder.path(), std::to_string(number) + " " + std::string(fault.duration) + " " + std::string(fault.name));
  const int status = run.result.status;
  if (kills(fault)) {
    EXPECT_TRUE(status == kKilled || status == 0) << status;
  } else if (fault.words.empty()) {
    EXPECT_EQ(status, 0) << run.result.err;
    EXPECT_EQ(run.result.err, "");
  } else {
    const bool nothing_read = status == kCannotRead && failed_to_list(run.calls, fault);
    EXPECT_TRUE(status == 0 || status == kCannotSave || nothing_read) << status;
    expect_reported(fault, run);
  }
  if (committed(run.calls)) {
    EXPECT_TRUE(newest_good(folder.path())) << "no good checkpoint is left";
  }
  expect_good_end(folder.path(), run.result);
}

// Tests every N-th case of all calls and faults. N is coprime to both numbers, so that every call and fault is covered.
TEST(FailingDisk, LosesNoSavedWorkWhicheverCallFails) {
  const ScratchFolder folder;
  const std::vector<DiskCall> calls = run_on_failing_disk(folder.path(), "").calls;
  ASSERT_EQ(newest_good(folder.path()), result_without_faults());
  ASSERT_GT(calls.size(), 80u);
  const std::size_t stride = std::stoul(std::getenv("TUTTI_STRIDE"));
  std::size_t cases = 0;
  for (std::size_t i = 0; i < calls.size() * kFaults.size(); i += stride) {
    const DiskCall& call = calls[i / kFaults.size()];
    const Fault& fault = kFaults[i % kFaults.size()];
    if (!concerns(fault, call)) continue;
    SCOPED_TRACE(testing::Message() << fault.name << " " << fault.duration << " at call " << call.number << ", "
                                    << call.name << " " << call.path);
    expect_no_work_lost(fault, call.number);
    ++cases;
  }
  RecordProperty("cases", static_cast<int>(cases));
}

}  // namespace
}  // namespace tutti::test
