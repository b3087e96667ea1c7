// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/result.hpp"

namespace farandole {

/// A file descriptor that this object closes.
///
/// It is closed in forked children too: a data loader's worker that inherited a control socket
/// would keep it open after the death of its rank, and nobody would notice that death.
///
/// Threads   distinct objects from any threads.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd);  // negative: none
  /// Takes what `open` returns, in such a way that no fork() can inherit it unregistered. `open`
  /// must not wait. Leaves errno.
  static Descriptor opened_by(const std::function<int()>& open);
  Descriptor(Descriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), ticket_(std::exchange(other.ticket_, 0)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }

  explicit operator bool() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void close();
  /// Gives the descriptor to the caller.
  int release();

 private:
  int fd_ = -1;
  std::uint64_t ticket_ = 0;  // of the register of descriptors to close after fork()
};

/// A numeric IP address and a port, as members publish it.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};
std::string text(const Endpoint& endpoint);  // "10.0.0.7:5000", "[::1]:5000"

/// A socket address as the system takes it.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

/// All addresses of `host` (a name or a number), IPv4 first, without port. May block in the
/// resolver.
/// Errors    kInvalidArgument naming the host when it has none.
Result<std::vector<Address>> resolve(const std::string& host);
Address with_port(Address address, std::uint16_t port);
/// The same for a numeric host; never blocks.
Result<Address> numeric_address(const Endpoint& endpoint);

bool is_loopback(const Address& address);
/// Whether `host` is the loopback on every host: "localhost" or a loopback address.
bool names_loopback(const std::string& host);
Endpoint local_endpoint(int fd);
Endpoint peer_endpoint(int fd);

/// The addresses of this host's interfaces that other hosts may reach: IPv4 first, neither loopback
/// nor link-local.
std::vector<std::string> host_addresses();

/// The address of the network interface `name`, or `name` itself if it is an address.
/// Errors    kInvalidArgument listing the interfaces there are.
Result<std::string> interface_address(const std::string& name);

/// A listening, non-blocking socket. `port` 0: one that the system picks.
/// Errors    kUnsupported when the port is taken (another may be free), else kInvalidArgument.
Result<Descriptor> listen_at(const Endpoint& endpoint);
/// A non-blocking socket whose connection is under way; on failure an empty one, and errno is set.
Descriptor start_connecting(const Address& address);
/// The next waiting connection, non-blocking; none if there is none.
Descriptor accept_connection(int listener);

/// The state of a connection under way: 0 connected, EINPROGRESS not yet, else the errno of its
/// failure. A socket that was connected to itself, as can happen on a port without a listener,
/// counts as refused.
int connection_error(int fd);

}  // namespace farandole
