#include "tutti/base/error.hpp"
#include "tutti/base/uninterrupted.hpp"
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
  if (uninterrupted([&] { return ::unlink(path.c_str()); }) == 0 || errno == ENOENT) return;
  throw Error(ErrorSource::save, fmt::format("cannot remove '{}', which is no longer needed: {}; remove it by hand",
                                             path, std::generic_category().message(errno)));
}

bool is_of_a_part(const StepName& file) { return file.kind == StepName::Kind::manifest && file.file != 0; }

// A checkpoint counts as long as its manifest is there, so that goes first.
void remove_files(const std::string& folder, std::vector<StepName> files) {
  std::ranges::stable_sort(files, {}, [](const StepName& file) { return file.kind == StepName::Kind::image; });
  for (const StepName& file : files) remove_file(folder, file.text());
}

// Killed between the last two renames of its save: its manifest is still called temporary.
bool is_uncommitted(const StepName& file, const StepFolder& listing, const std::set<std::int64_t>& complete) {
  const std::string manifest = manifest_name(file.step, file.file) + ".";
  return file.kind == StepName::Kind::image && !complete.contains(file.step) &&
         std::ranges::any_of(listing.temporary, [&](const std::string& name) { return name.starts_with(manifest); });
}

}  // namespace

void CheckpointStore::prune(const KeepRule& keep) const {
  StepFolder listing = list_steps(folder_);
  const std::set<std::int64_t> complete = listing.complete();
  std::set<std::int64_t> superfluous;
  if (keep.newest > 0) {
    const auto counted = std::distance(complete.begin(), complete.upper_bound(keep.last_step));
    const auto older = std::max<std::ptrdiff_t>(counted - keep.newest, 0);
    superfluous.insert(complete.begin(), std::next(complete.begin(), older));
    superfluous.erase(keep.best_step);
  }
  std::erase_if(listing.files, [&](const StepName& file) {
    const bool is_told_of = is_of_a_part(file) && !complete.empty() && file.step <= *complete.rbegin();
    return !is_told_of && !superfluous.contains(file.step);
  });
  remove_files(folder_, std::move(listing.files));
}

void CheckpointStore::clear_leftovers() const {
  StepFolder listing = list_steps(folder_);
  const std::set<std::int64_t> complete = listing.complete();
  std::erase_if(listing.files,
                [&](const StepName& file) { return !is_of_a_part(file) && !is_uncommitted(file, listing, complete); });
  remove_files(folder_, std::move(listing.files));
  for (const std::string& name : listing.temporary) remove_file(folder_, name);
}

}  // namespace tutti
