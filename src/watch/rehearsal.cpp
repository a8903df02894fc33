#include "tutti/watch/rehearsal.hpp"

#include "incident_kinds.hpp"
#include "rehearsed_communicator.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

namespace tutti {
namespace {

Phase begins_in(const Incident& incident) {
  switch (incident.kind) {
    case IncidentKind::kill:
    case IncidentKind::stop:
    case IncidentKind::delay:
      return incident.phase;
    case IncidentKind::flip:
      return incident.flip.of == kGradients ? Phase::update : Phase::reports;
    case IncidentKind::drop_bucket:
    case IncidentKind::slow_link:
      return Phase::data;
  }
  return incident.phase;
}

}  // namespace

std::int64_t LinkFaults::time_ns(std::size_t bytes) const {
  if (slow == nullptr) return 0;
  const double seconds = slow->mbps > 0 ? static_cast<double>(bytes) * 8 / (slow->mbps * 1e6) : slow->seconds;
  return static_cast<std::int64_t>(seconds * 1e9);
}

std::unique_ptr<Communicator> Rehearsal::between(std::unique_ptr<Communicator> communicator) {
  return make_rehearsed_communicator(std::move(communicator), link_);
}

void Rehearsal::begin(const std::vector<Incident>& incidents, Flip flip) {
  flip_ = std::move(flip);
  for (const Incident& incident : incidents) {
    if (incident.rank == log_.rank()) planned_.push_back({.incident = incident});
  }
  on_begin({});
}

std::vector<Incident> Rehearsal::missed() const {
  std::vector<Incident> missed;
  for (const Planned& planned : planned_) {
    if (!planned.done_to) missed.push_back(planned.incident);
  }
  return missed;
}

bool Rehearsal::is_due(const Planned& planned, const Place& place) {
  const Incident& incident = planned.incident;
  if (place.phase != begins_in(incident) || place.step < incident.first_step) return false;
  if (!planned.done_to) return true;  // not every step comes to every phase
  return place.step > *planned.done_to && place.step <= incident.last_step;
}

void Rehearsal::on_begin(const Place& place) {
  if (place.phase == Phase::data) link_ = {};
  for (Planned& planned : planned_) {
    if (!is_due(planned, place)) continue;
    if (!planned.done_to) {
      log_.warn(fmt::format("rehearsal, now in step {}: {}", place.step, text_of(planned.incident)));
    }
    planned.done_to = place.step;
    happen(planned.incident);
  }
}

void Rehearsal::happen(const Incident& incident) {
  switch (incident.kind) {
    case IncidentKind::kill:
      ::kill(::getpid(), SIGKILL);
      break;
    case IncidentKind::stop:
      ::kill(::getpid(), SIGSTOP);
      break;
    case IncidentKind::delay:
      std::this_thread::sleep_for(std::chrono::duration<double>(incident.seconds));
      break;
    case IncidentKind::flip:
      flip_(incident.flip);
      break;
    case IncidentKind::drop_bucket:
      link_.lost_sum = incident.bucket;
      break;
    case IncidentKind::slow_link:
      link_.slow = &incident;
      break;
  }
}

}  // namespace tutti
