#pragma once
// A communicator whose sums are lost or late, as a rehearsal wants it.

#include "tutti/watch/rehearsal.hpp"

#include <memory>

namespace tutti {

// `faults` are borrowed.
std::unique_ptr<Communicator> make_rehearsed_communicator(std::unique_ptr<Communicator> inner, LinkFaults& faults);

}  // namespace tutti
