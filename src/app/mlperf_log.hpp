#pragma once
// A run in the lines that MLPerf's readers of training logs know, appended to one file:
//
//   :::MLLOG {"namespace":"","time_ms":1790000000000,"event_type":"POINT_IN_TIME","key":"seed","value":0,
//             "metadata":{"file":"mlperf_log.cpp","lineno":60}}                                      all on one line
//
// time_ms counts milliseconds since 1970. Keys, in order:
//   init_start, init_stop                     from the start of the process to the first step
//   seed, global_batch_size, train_samples, eval_samples, opt_name, opt_base_learning_rate,
//   opt_learning_rate_warmup_epochs, opt_momentum, opt_weight_decay       what was chosen; eval_samples 0: no test set
//   run_start
//   epoch_start, epoch_stop                   metadata epoch_num, from 1
//   eval_start, eval_stop, eval_accuracy      of the test set, likewise; where the epoch is followed by an evaluation
//   tracked_stats                             value throughput (images/s) and train_loss; metadata epoch_num and step
//   run_stop                                  metadata status: success, or aborted by a wish to stop; a run that
//                                             fails leaves none
// What belongs to submissions alone, as names of systems and clearing of caches, is left out.

#include "tutti/storage/line_file.hpp"
#include "tutti/train/run_recorder.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

struct MlperfFacts {
  std::int64_t seed = 0;
  std::int64_t batch_size = 0;
  std::int64_t train_samples = 0;
  std::int64_t test_samples = 0;
  std::string optimizer;
  double learning_rate = 0;
  double warmup_epochs = 0;
  double momentum = 0;
  double weight_decay = 0;
};

class MlperfLog : public RunRecorder {
 public:
  // Opens for appending. Throws a save error that names the path.
  MlperfLog(const std::string& path, MlperfFacts facts);

  void on_begin(const RunBegin& begin) override;
  void on_step(const StepProgress& progress) override;
  void on_epoch(const EpochReport& report) override;
  void on_epoch_left(const EpochEnd& end) override;
  void on_end(RunEnd end) override;

 private:
  LineFile file_;
  MlperfFacts facts_;
  std::optional<std::int64_t> epoch_begun_ms_;  // of an epoch that has no step yet
};

}  // namespace tutti
