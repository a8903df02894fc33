#pragma once
// Which forms a run's reports are kept in, as its options say.

#include "tutti/comm/world.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/train/run_recorder.hpp"

#include "assemble.hpp"

#include <memory>
#include <vector>

namespace tutti {

// Rank 0's; the others have none. `folder` is that of --out. A run that is not resumed begins its sample log anew.
// Throws save errors.
std::vector<std::unique_ptr<RunRecorder>> make_recorders(const Assembly& assembly, const World& world,
                                                         const OwnedFolder& folder, bool resumes);

}  // namespace tutti
