#pragma once
// What carries the collectives between GPUs: NVLink, PCIe, InfiniBand, sockets. NCCL reports it only in its log.

#include "tutti/comm/world.hpp"

#include <string>

namespace tutti::nccl {

// The path by which NCCL can write its log to memory; empty if it cannot.
std::string log_path();
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
