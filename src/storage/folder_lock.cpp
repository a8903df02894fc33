#include "tutti/storage/folder_lock.hpp"

namespace tutti {

FolderLock::FolderLock(const std::string&, double, const Log&) {}

}  // namespace tutti
