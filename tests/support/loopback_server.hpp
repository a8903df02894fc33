#pragma once
// A web server on 127.0.0.1 for one test: it serves what it is given, as badly as it is told to, and keeps what it was
// asked. It answers one request a connection, one after another.

#include "tutti/base/descriptor.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tutti::test {

// How a server treats a file.
struct ServedFile {
  std::string content;
  bool knows_ranges = true;
  std::size_t cut_after = std::string::npos;  // so many bytes of an answer, then the connection is gone
  int cuts = 1;                               // so many times
};

class LoopbackServer {
 public:
  LoopbackServer() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(socket_.get(), 8) != 0 ||
        ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw std::runtime_error("no server on 127.0.0.1");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this] { run(); });
  }
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;
  ~LoopbackServer() { static_cast<void>(::shutdown(socket_.get(), SHUT_RDWR)); }

  std::string url() const { return fmt::format("http://127.0.0.1:{}/", port_); }
  void serve(const std::string& name, ServedFile file) {
    const std::lock_guard lock(mutex_);
    files_[name] = std::move(file);
  }
  // As "name" or "name from 17", in order.
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void run() {
    while (true) {
      const Descriptor connection(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection) return;
      std::string head;
      std::array<char, 4096> piece{};
      while (head.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = ::recv(connection.get(), piece.data(), piece.size(), 0);
        if (got <= 0) break;
        head.append(piece.data(), static_cast<std::size_t>(got));
      }
      send(connection.get(), answer(head));
    }
  }

  std::string answer(const std::string& head) {
    const std::lock_guard lock(mutex_);
    const std::string name = head.substr(5, head.find(' ', 5) - 5);
    const std::size_t range = head.find("Range: bytes=");
    std::size_t from = range == std::string::npos ? 0 : std::stoul(head.substr(range + 13));
    requests_.push_back(from == 0 ? name : fmt::format("{} from {}", name, from));
    const auto found = files_.find(name);
    if (found == files_.end()) return "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    ServedFile& file = found->second;
    if (!file.knows_ranges) from = 0;
    const std::string rest = file.content.substr(std::min(from, file.content.size()));
    std::string text = from == 0 ? "HTTP/1.1 200 OK\r\n"
                                 : fmt::format("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {}-{}/{}\r\n",
                                               from, file.content.size() - 1, file.content.size());
    text += fmt::format("Content-Length: {}\r\nConnection: close\r\n\r\n", rest.size());
    if (file.cut_after == std::string::npos || file.cuts-- <= 0) return text + rest;
    return text + rest.substr(0, file.cut_after);
  }

  static void send(int connection, std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  Descriptor socket_;
  int port_ = 0;
  std::mutex mutex_;
  std::map<std::string, ServedFile> files_;
  std::vector<std::string> requests_;
  std::jthread thread_;  // the last member: ended before the others go
};

}  // namespace tutti::test
