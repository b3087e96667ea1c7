// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "unit/transport/tcp_sockets.hpp"

#include <netinet/in.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace farandole::tcp {
namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

// A stream to 127.0.0.1 from 127.0.0.`from`.
std::pair<int, int> stream_from(std::uint32_t from) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  require(::bind(listener, raw, length) == 0, "bind");
  require(::listen(listener, 1) == 0, "listen");
  require(::getsockname(listener, raw, &length) == 0, "getsockname");
  const int near = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + from);
  require(::bind(near, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0, "bind");
  require(::connect(near, raw, length) == 0, "connect");
  const int far = ::accept(listener, nullptr, nullptr);
  require(far >= 0, "accept");
  ::close(listener);
  return {near, far};
}

}  // namespace

std::pair<int, int> tcp_pair() {
  return stream_from(1);
}
std::pair<int, int> far_tcp_pair() {
  return stream_from(2);
}

std::pair<int, int> local_pair(int send_buffer_bytes) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  for (const int end : ends) {
    if (send_buffer_bytes == 0) break;
    ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &send_buffer_bytes, sizeof send_buffer_bytes);
  }
  return {ends[0], ends[1]};
}

std::vector<std::byte> numbered(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31 + i / 251);
  return data;
}

SocketHub::~SocketHub() {
  for (const auto& [key, fd] : waiting_) ::close(fd);
}

int SocketHub::open(Rank from, Rank to, std::string_view purpose) {
  const auto [near, far] = make_();
  {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(Key(from, to, purpose), far);
  }
  arrived_.notify_all();
  return near;
}

Result<int> SocketHub::accept(Rank from, Rank to, std::string_view purpose, Deadline deadline) {
  const Key key(from, to, purpose);
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_until(lock, deadline.when(), [&] { return waiting_.contains(key); })) {
    return Error{ErrorKind::kTimedOut, "rank " + std::to_string(from.value()) + " did not open " +
                                           std::string(purpose) + " in time"};
  }
  return waiting_.extract(key).mapped();
}

}  // namespace farandole::tcp
