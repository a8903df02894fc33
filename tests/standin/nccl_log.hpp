#pragma once
// NCCL's log of what it uses between GPUs, in its words: for NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,GRAPH.
//
// Environment: TUTTI_NCCL_TRANSPORT="NVL IB" is the path between the GPUs of a host, and the network.

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace tutti::standin {

inline void log_transport() {
  const char* const level = std::getenv("NCCL_DEBUG");
  const char* const file = std::getenv("NCCL_DEBUG_FILE");
  if (level == nullptr || std::string_view(level) != "INFO" || file == nullptr) return;
  const char* const chosen = std::getenv("TUTTI_NCCL_TRANSPORT");
  std::string path;
  std::string network;
  std::istringstream(chosen == nullptr ? "NVL IB" : chosen) >> path >> network;
  std::ofstream log(file, std::ios::app);
  const std::string begin = "host:1:2 [0] NCCL INFO ";
  log << begin << "Using network " << network << '\n';
  log << begin << "Pattern 4, crossNic 0, nChannels 16, bw 20.0/20.0, type " << path << "/PIX, sameChannels 1\n";
  log << begin << "Pattern 1, crossNic 0, nChannels 16, bw 40.0/20.0, type SYS/PIX, sameChannels 1\n";
}

}  // namespace tutti::standin
