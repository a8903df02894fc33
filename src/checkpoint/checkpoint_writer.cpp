#include "tutti/checkpoint/checkpoint_writer.hpp"

#include "tutti/base/error.hpp"

namespace tutti {

class CheckpointWriter::Desk {};
CheckpointWriter::CheckpointWriter(CheckpointStore, FileShare, KeepRule) {}
CheckpointWriter::~CheckpointWriter() = default;
void CheckpointWriter::save(TrainState) { throw Error(ErrorSource::internal, "unfinished"); }
std::vector<SaveReport> CheckpointWriter::take_reports() { throw Error(ErrorSource::internal, "unfinished"); }
void CheckpointWriter::finish() { throw Error(ErrorSource::internal, "unfinished"); }
bool CheckpointWriter::newest_is_saved() const { throw Error(ErrorSource::internal, "unfinished"); }

}  // namespace tutti
