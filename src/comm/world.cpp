#include "tutti/comm/world.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace tutti {
namespace {

std::optional<Error> error_of(const std::function<void()>& action) {
  try {
    action();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorSource::input, "not enough memory; use a smaller batch, or fewer ranks on this host");
  } catch (const std::exception& foreign) {
    return Error(ErrorSource::internal, foreign.what());
  } catch (...) {
    return Error(ErrorSource::internal, "an exception of unknown type");
  }
}

// " (src/file.cpp:12)"; empty for user errors.
std::string location_of(const Error& error) {
  const std::string described = error.describe();
  const auto at = described.find(error.what());
  return at == std::string::npos ? "" : described.substr(at + std::string(error.what()).size());
}

// Equal on ranks with the same error; empty on those without one.
std::string key_of(const std::optional<Error>& error) {
  if (!error) return "";
  return fmt::format("{} {} {}", static_cast<int>(error->source()), static_cast<int>(error->scope()),
                     error->scope() == ErrorScope::all_ranks ? "" : error->what());
}

}  // namespace

Buffer World::node_memory(std::size_t bytes) {
  GrowingMemory memory = begin_node_memory();
  run_or_throw_on_all(*this, [&] {
    if (local_rank_ == 0) memory.resize(bytes);
  });
  return share(std::move(memory));
}

std::string broadcast_text(World& world, const std::string& text, int root) {
  std::uint64_t length = text.size();
  world.broadcast(std::as_writable_bytes(std::span(&length, 1)), root);
  std::string received = world.rank() == root ? text : std::string(length, '\0');
  world.broadcast(std::as_writable_bytes(std::span(received)), root);
  return received;
}

std::vector<std::string> all_gather_text(World& world, const std::string& mine) {
  std::vector<std::string> texts;
  for (const auto& text : all_gather_values<char>(world, mine)) texts.emplace_back(text.begin(), text.end());
  return texts;
}

std::vector<std::vector<double>> all_gather_doubles(World& world, const std::vector<double>& mine) {
  return all_gather_values<double>(world, mine);
}

std::vector<double> max_over_ranks(World& world, std::vector<double> values) {
  for (const auto& theirs : all_gather_doubles(world, values)) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::max(values[i], theirs.at(i));
  }
  return values;
}

void run_or_throw_on_all(World& world, const std::function<void()>& action) {
  const std::optional<Error> mine = error_of(action);
  if (world.all_true(!mine)) return;

  const std::vector<std::string> keys = all_gather_text(world, key_of(mine));
  if (std::ranges::count(keys, keys.front()) == world.size()) throw mine->on_all_ranks();

  // Not all ranks have the same error, so it helps to name the lowest rank that has one.
  const auto lowest = std::ranges::find_if(keys, [](const std::string& key) { return !key.empty(); });
  const auto rank = static_cast<int>(lowest - keys.begin());
  if (rank != world.rank()) {
    throw Error(static_cast<ErrorSource>(std::stoi(*lowest)), broadcast_text(world, "", rank)).on_all_ranks();
  }
  // This rank throws with its source location; the others have that location in the text.
  const std::string named = fmt::format("rank {} on host {}: {}", rank, world.host(), mine->what());
  broadcast_text(world, named + location_of(*mine), rank);
  throw Error(mine->source(), named, mine->where()).on_all_ranks();
}

}  // namespace tutti
