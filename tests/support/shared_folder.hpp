#pragma once
// A folder of rank 0, whose path all ranks know.

#include "support/mpi_world.hpp"
#include "support/scratch_folder.hpp"

#include <optional>
#include <string>

namespace tutti {

// The constructor is collective.
class SharedFolder {
 public:
  SharedFolder() {
    if (test_world().rank() == 0) folder_.emplace();
    path_ = broadcast_text(test_world(), folder_ ? folder_->path() : "", 0);
  }
  const std::string& path() const { return path_; }

 private:
  std::optional<ScratchFolder> folder_;
  std::string path_;
};

}  // namespace tutti
