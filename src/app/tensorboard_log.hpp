#pragma once
// What TensorBoard shows of a run: one event file for each start, called events.out.tfevents.<seconds>.<host>.<process>
// and framed as storage/record_file.hpp says. Each record is an Event of TensorFlow's protocol buffers:
//   1  double  seconds since 1970
//   2  int64   steps done in the run
//   3  text    "brain.Event:2", in the first event, which has neither step nor figure
//   5  message Summary: field 1, repeated, of each figure a message: 1 its name, 2 its value (float)
//   7  message SessionLog: 1 = 1, a start at this step: what earlier files have of later ones no longer counts
// Figures after every epoch: loss/train, accuracy/train, loss/test and accuracy/test where there is an evaluation, lr,
// images_per_second, and time/data, time/compute .. as shares of the time since the last such figures. Of every stretch
// of steps (--log-every): loss/steps, accuracy/steps.

#include "tutti/storage/record_file.hpp"
#include "tutti/train/run_recorder.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

class TensorboardLog : public RunRecorder {
 public:
  // Makes its file in `folder`, which is there. Throws a save error that names the path.
  TensorboardLog(const std::string& folder, const std::string& host);

  void on_begin(const RunBegin& begin) override;
  void on_epoch(const EpochReport& report) override;
  void on_stretch(const StretchReport& report) override;
  void on_time(const EpochEnd& end, const TimeReport& time) override;

 private:
  using Figures = std::vector<std::pair<std::string, double>>;
  void write(std::int64_t step, const Figures& figures);

  RecordFile file_;
};

}  // namespace tutti
