// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "bootstrap/invalid.hpp"
#include "bootstrap/sockets.hpp"

namespace farandole {
namespace {

constexpr int kBacklog = 4096;  // the system cuts it down to what it allows

const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

Result<std::vector<Address>> look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failure = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failure != 0) {
    return invalid("the host '" + host + "' has no address: " + gai_strerror(failure) + ".");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<Address> found;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    Address address;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
    found.push_back(address);
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const Address& a) { return a.storage.ss_family == AF_INET; });
  return found;
}

std::string numeric_host(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST];
  if (getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return host;
}

Endpoint endpoint_of(const Address& address) {
  char host[NI_MAXHOST], service[NI_MAXSERV];
  if (getnameinfo(generic(address), address.length, host, sizeof host, service, sizeof service,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  return Endpoint{host, static_cast<std::uint16_t>(std::strtoul(service, nullptr, 10))};
}

Address name_of(int fd, int (*call)(int, sockaddr*, socklen_t*)) {
  Address address;
  address.length = sizeof address.storage;
  if (call(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    address.length = 0;
  }
  return address;
}

struct Interface {
  std::string name, address;
};

/// The interfaces that are up, IPv4 addresses first.
std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<Interface> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      if ((one->ifa_flags & IFF_UP) == 0) continue;
      const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      found.push_back({one->ifa_name, numeric_host(one->ifa_addr, length)});
    }
  }
  return found;
}

void send_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Descriptor new_socket(const Address& address) {
  return Descriptor::opened_by([&] {
    return socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  });
}

}  // namespace

std::string text(const Endpoint& endpoint) {
  const bool six = endpoint.host.find(':') != std::string::npos;
  return (six ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

Result<std::vector<Address>> resolve(const std::string& host) {
  return look_up(host, 0, 0);
}

Address with_port(Address address, std::uint16_t port) {
  if (address.storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = htons(port);
  }
  return address;
}

Result<Address> numeric_address(const Endpoint& endpoint) {
  auto found = look_up(endpoint.host, endpoint.port, AI_NUMERICHOST);
  if (!found) return found.error();
  return found->front();
}

bool is_loopback(const Address& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(&address.storage);
    return ntohl(in->sin_addr.s_addr) >> 24 == 127;
  }
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

bool names_loopback(const std::string& host) {
  for (const char* name : {"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"}) {
    if (strcasecmp(host.c_str(), name) == 0) return true;
  }
  const auto address = numeric_address(Endpoint{host, 0});
  return address && is_loopback(*address);
}

Endpoint local_endpoint(int fd) {
  return endpoint_of(name_of(fd, &getsockname));
}
Endpoint peer_endpoint(int fd) {
  return endpoint_of(name_of(fd, &getpeername));
}

std::vector<std::string> host_addresses() {
  std::vector<std::string> found;
  for (const Interface& one : interfaces()) {
    const auto address = numeric_address(Endpoint{one.address, 0});
    const bool local = one.address.starts_with("169.254.") || one.address.starts_with("fe80:");
    if (address && !is_loopback(*address) && !local) found.push_back(one.address);
  }
  return found;
}

Result<std::string> interface_address(const std::string& name) {
  std::set<std::string> known;
  for (const Interface& one : interfaces()) {
    if (one.name == name || one.address == name) return one.address;
    known.insert(one.name);
  }
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  return invalid("FARANDOLE_INTERFACE is '" + name +
                 "'; allowed is the name or the address of an interface of this host: " + list +
                 ".");
}

Result<Descriptor> listen_at(const Endpoint& endpoint) {
  auto address = numeric_address(endpoint);
  if (!address) return address.error();
  Descriptor fd = new_socket(*address);
  const int on = 1;
  const bool listening = fd && setsockopt(fd.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                         bind(fd.fd(), generic(*address), address->length) == 0 &&
                         listen(fd.fd(), kBacklog) == 0;
  if (!listening) {
    const ErrorKind kind =
        errno == EADDRINUSE ? ErrorKind::kUnsupported : ErrorKind::kInvalidArgument;
    return Error{kind, "cannot listen at " + text(endpoint) + ": " + std::strerror(errno) + "."};
  }
  return fd;
}

Descriptor start_connecting(const Address& address) {
  if (Sockets* sockets = Sockets::installed()) return Descriptor(sockets->connect(address));
  Descriptor fd = new_socket(address);
  if (!fd) return fd;
  send_at_once(fd.fd());
  if (connect(fd.fd(), generic(address), address.length) == 0) return fd;
  // An interrupted connect() goes on in the background, like one that would block.
  if (errno == EINPROGRESS || errno == EINTR) return fd;
  const int reason = errno;
  fd.close();
  errno = reason;
  return fd;
}

Descriptor accept_connection(int listener) {
  if (Sockets* sockets = Sockets::installed()) return Descriptor(sockets->accept(listener));
  for (;;) {
    Descriptor fd = Descriptor::opened_by(
        [&] { return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
    if (fd) send_at_once(fd.fd());
    if (fd || (errno != EINTR && errno != ECONNABORTED)) return fd;
  }
}

int connection_error(int fd) {
  if (Sockets* sockets = Sockets::installed()) return sockets->connection_error(fd);
  int reason = 0;
  socklen_t length = sizeof reason;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &length) != 0) return errno;
  if (reason != 0) return reason;
  const Address peer = name_of(fd, &getpeername);
  if (peer.length == 0) return EINPROGRESS;
  const Address self = name_of(fd, &getsockname);
  const bool same =
      self.length == peer.length && std::memcmp(&self.storage, &peer.storage, peer.length) == 0;
  return same ? ECONNREFUSED : 0;
}

}  // namespace farandole
