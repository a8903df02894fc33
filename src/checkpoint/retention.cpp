#include "tutti/base/error.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"

#include "step_folder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <set>
#include <system_error>

namespace tutti {
namespace {

void remove_file(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return;
  throw Error(ErrorSource::save, fmt::format("cannot remove '{}', which is no longer needed: {}; remove it by hand",
                                             path, std::generic_category().message(errno)));
}

bool is_of_a_part(const StepName& file) { return file.kind == StepName::Kind::manifest && file.file != 0; }

// A checkpoint counts as long as its manifest is there, so that goes first.
void remove_files(const std::string& folder, std::vector<StepName> files) {
  std::ranges::stable_sort(files, {}, [](const StepName& file) { return file.kind == StepName::Kind::image; });
  for (const StepName& file : files) remove_file(folder, file.text());
}

}  // namespace

void CheckpointStore::prune(const KeepRule& keep) const {
  if (keep.newest == 0) return;
  StepFolder listing = list_steps(folder_);
  const std::set<std::int64_t> complete = listing.complete();
  if (complete.empty()) return;
  const std::int64_t most = std::ssize(complete) - std::max<std::int64_t>(keep.newest, 1);
  std::set<std::int64_t> superfluous;
  for (const StepName& file : listing.files) {
    const auto older = std::distance(complete.begin(), complete.lower_bound(file.step));
    const bool is_complete = complete.contains(file.step);
    if (is_complete ? older < most : file.step < *complete.rbegin()) superfluous.insert(file.step);
  }
  superfluous.erase(keep.best_step);
  std::erase_if(listing.files, [&](const StepName& file) {
    return !superfluous.contains(file.step) && !(is_of_a_part(file) && complete.contains(file.step));
  });
  remove_files(folder_, listing.files);
}

void CheckpointStore::clear_leftovers() const {
  StepFolder listing = list_steps(folder_);
  for (const std::string& name : listing.temporary) remove_file(folder_, name);
  std::erase_if(listing.files, [](const StepName& file) { return !is_of_a_part(file); });
  remove_files(folder_, std::move(listing.files));
}

}  // namespace tutti
