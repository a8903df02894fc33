#include "tutti/base/error.hpp"
#include "tutti/comm/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <optional>

namespace tutti {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  std::string text(bytes.size(), '\0');
  std::transform(bytes.begin(), bytes.end(), text.begin(), [](std::byte b) { return static_cast<char>(b); });
  return text;
}

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

// The error of a rank, as it is sent to the others.
struct Failure {
  bool failed = false;
  ErrorSource source = ErrorSource::internal;
  ErrorScope scope = ErrorScope::this_rank;
  std::string host;
  std::string message;
  std::string location;  // " (src/file.cpp:12)"; empty for user errors
};

std::string location_of(const Error& error) {
  const std::string described = error.describe();
  const auto at = described.find(error.what());
  return at == std::string::npos ? "" : described.substr(at + std::string(error.what()).size());
}

std::vector<Failure> exchange(World& world, const std::optional<Error>& mine) {
  const std::string status{static_cast<char>(mine ? 1 : 0),
                           static_cast<char>(mine ? mine->source() : ErrorSource::internal),
                           static_cast<char>(mine ? mine->scope() : ErrorScope::this_rank)};
  const auto statuses = all_gather_text(world, status);
  const auto hosts = all_gather_text(world, world.host());
  const auto messages = all_gather_text(world, mine ? mine->what() : "");
  const auto locations = all_gather_text(world, mine ? location_of(*mine) : "");

  std::vector<Failure> failures;
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    failures.push_back({.failed = statuses[rank][0] != 0,
                        .source = static_cast<ErrorSource>(statuses[rank][1]),
                        .scope = static_cast<ErrorScope>(statuses[rank][2]),
                        .host = hosts[rank],
                        .message = messages[rank],
                        .location = locations[rank]});
  }
  return failures;
}

// True if all ranks have the same error, so that naming one rank would not help.
bool all_equal(const std::vector<Failure>& failures) {
  const Failure& first = failures.front();
  return std::all_of(failures.begin(), failures.end(), [&](const Failure& failure) {
    if (!failure.failed || failure.source != first.source || failure.scope != first.scope) return false;
    return failure.message == first.message || failure.scope == ErrorScope::all_ranks;
  });
}

}  // namespace

std::string broadcast_text(World& world, const std::string& text, int root) {
  std::uint64_t length = text.size();
  world.broadcast(std::as_writable_bytes(std::span(&length, 1)), root);
  std::string received = world.rank() == root ? text : std::string(length, '\0');
  world.broadcast(std::as_writable_bytes(std::span(received)), root);
  return received;
}

std::vector<std::string> all_gather_text(World& world, const std::string& mine) {
  std::vector<std::string> texts;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine)))) texts.push_back(text_of(bytes));
  return texts;
}

std::vector<std::vector<double>> all_gather_doubles(World& world, const std::vector<double>& mine) {
  std::vector<std::vector<double>> all;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine)))) {
    std::vector<double>& theirs = all.emplace_back(bytes.size() / sizeof(double));
    if (!bytes.empty()) std::memcpy(theirs.data(), bytes.data(), bytes.size());
  }
  return all;
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

  const std::vector<Failure> failures = exchange(world, mine);
  if (all_equal(failures)) throw mine->on_all_ranks();

  const auto lowest = std::find_if(failures.begin(), failures.end(), [](const Failure& f) { return f.failed; });
  const auto rank = lowest - failures.begin();
  const std::string named = fmt::format("rank {} on host {}: {}", rank, lowest->host, lowest->message);
  // The failing rank throws with its source location; the others append that location to the text.
  if (rank == world.rank()) throw Error(mine->source(), named, mine->where()).on_all_ranks();
  throw Error(lowest->source, named + lowest->location).on_all_ranks();
}

}  // namespace tutti
