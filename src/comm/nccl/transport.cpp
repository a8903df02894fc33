#include "transport.hpp"

#include "tutti/base/unique_handle.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <set>
#include <string_view>

namespace tutti::nccl {
namespace {

// In memory; NCCL opens it by its path.
const Descriptor& log_file() {
  static const Descriptor file(::memfd_create("nccl-log", MFD_CLOEXEC));
  return file;
}

// The text between the last occurrence of `before` and the next of `after`.
std::string_view last_between(std::string_view text, std::string_view before, char after) {
  const std::size_t at = text.rfind(before);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + before.size());
  return text.substr(0, text.find(after));
}

// From NCCL's name for the longest path between GPUs in its ring.
std::string link_of(std::string_view path) {
  if (path.empty() || path == "LOC") return {};
  if (path == "NVL" || path == "NVB") return "NVLink";
  return path == "C2C" ? "NVLink-C2C" : fmt::format("PCIe ({})", path);
}

// Without empty texts. Collective.
std::set<std::string> of_all_ranks(World& world, const std::string& mine) {
  const auto all = all_gather_text(world, mine);
  std::set<std::string> texts(all.begin(), all.end());
  texts.erase("");
  return texts;
}

}  // namespace

std::string log_path() {
  std::string path = fmt::format("/proc/self/fd/{}", log_file().get());
  return ::access(path.c_str(), W_OK) == 0 ? path : "";
}

std::string read_log() {
  std::string text;
  std::array<char, 1 << 14> block{};
  const auto read_block = [&] {
    return ::pread(log_file().get(), block.data(), block.size(), static_cast<off_t>(text.size()));
  };
  for (ssize_t bytes = 0; (bytes = retry_on_eintr(read_block)) > 0;) {
    text.append(block.data(), static_cast<std::size_t>(bytes));
  }
  return text;
}

// Pattern 4 is the ring; a type has the path within a host before the slash, and the one to the network card after it.
Transport transport_in(const std::string& log) {
  const std::string_view ring = last_between(log, "NCCL INFO Pattern 4,", '\n');
  return {.within_host = link_of(last_between(ring, " type ", '/')),
          .between_hosts = std::string(last_between(log, "NCCL INFO Using network ", '\n'))};
}

std::string transport_text(World& world, const Transport& mine) {
  const std::set<std::string> within = of_all_ranks(world, mine.within_host);
  const std::set<std::string> between = of_all_ranks(world, mine.between_hosts);
  std::string text = fmt::format("{}", fmt::join(within, " and "));
  if (world.local_size() < world.size() && !between.empty()) {
    text += fmt::format("{}{} between hosts", text.empty() ? "" : ", ", fmt::join(between, " and "));
  }
  return text;
}

}  // namespace tutti::nccl
