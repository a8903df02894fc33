#pragma once
// What carries the collectives between GPUs: NVLink, PCIe, InfiniBand, sockets. NCCL tells only its log.

#include "tutti/comm/world.hpp"

#include <string>

namespace tutti::nccl {

// Makes NCCL write its choices to memory, unless NCCL_DEBUG is set. To be called before the first NCCL call of the
// process, since NCCL reads its environment once.
void begin_log();
// What NCCL has written; empty if it writes elsewhere.
std::string read_log();

// A rank's last choice, or empty texts if it is unknown.
struct Transport {
  std::string within_host{};    // "NVLink", "PCIe (PHB)"; empty also for the only rank of a host
  std::string between_hosts{};  // "IB", "Socket", or the name of a plugin
};
Transport transport_in(const std::string& log);

// Of all ranks: "NVLink, IB between hosts". Collective.
std::string transport_text(World& world, const Transport& mine);

}  // namespace tutti::nccl
