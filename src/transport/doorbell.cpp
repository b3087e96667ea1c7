// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/doorbell.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace farandole {
namespace {

constexpr std::size_t kPathOffset = offsetof(sockaddr_un, sun_path);

Error refused(const char* call) {
  return Error{ErrorKind::kInternal,
               std::string(call) + " refused a doorbell socket: " + std::strerror(errno) + "."};
}

/// Sends one datagram. Returns 0 or the error number.
int wake(const std::string& address, int from_fd) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const std::size_t length = std::min(address.size(), sizeof(to.sun_path) - 1);
  std::memcpy(to.sun_path + 1, address.data(), length);  // the first byte, 0, marks it abstract
  const auto size = static_cast<socklen_t>(kPathOffset + 1 + length);
  const char byte = 0;
  for (;;) {
    const ssize_t sent = ::sendto(from_fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                                  reinterpret_cast<const sockaddr*>(&to), size);
    if (sent >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

}  // namespace

Result<std::unique_ptr<Doorbell>> Doorbell::create(std::atomic<std::uint32_t>& armed) {
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return refused("socket");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  socklen_t size = sizeof(name);
  // Binding to an empty name makes the kernel pick a free abstract one.
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&name), kPathOffset) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) {
    Error error = refused("bind");
    ::close(fd);
    return error;
  }
  std::string address(name.sun_path + 1, size - kPathOffset - 1);
  return std::unique_ptr<Doorbell>(new Doorbell(fd, std::move(address), armed));
}

Doorbell::~Doorbell() {
  ::close(fd_);
}

void Doorbell::drain() {
  char byte = 0;
  while (::recv(fd_, &byte, 1, MSG_DONTWAIT) >= 0 || errno == EINTR) {
  }
}

void Doorbell::disarm_and_wake(std::atomic<std::uint32_t>& armed, const std::string& address,
                               int from_fd) {
  // The exchange lets one ringer through. A full queue means that the sleeper is awake already.
  if (armed.exchange(0, std::memory_order_seq_cst) != 0) (void)wake(address, from_fd);
}

bool Doorbell::reachable(const std::string& address, int from_fd) {
  const int error = wake(address, from_fd);
  return error == 0 || error == EAGAIN;
}

}  // namespace farandole
