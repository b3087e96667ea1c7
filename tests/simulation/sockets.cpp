// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulation/sockets.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace farandole::simulation {
namespace {

constexpr int kFirstPort = 10'000;

}  // namespace

VirtualSockets::VirtualSockets(Timetable& timetable, Random& random, Clock::duration delay_max,
                               int rank_count, std::function<void(int)> wake)
    : timetable_(timetable),
      random_(random),
      delay_max_(delay_max),
      wake_(std::move(wake)),
      listeners_(static_cast<std::size_t>(rank_count), -1) {
  install(this);
}

Endpoint VirtualSockets::endpoint_of(int rank) {
  return {"10.0.0.1", static_cast<std::uint16_t>(kFirstPort + rank)};
}

int VirtualSockets::add(int owner) {
  ends_[next_].owner = owner;
  return next_++;
}

VirtualSockets::End* VirtualSockets::find(int fd) {
  const auto found = ends_.find(fd);
  return found == ends_.end() ? nullptr : &found->second;
}

int VirtualSockets::listen() {
  return listeners_[static_cast<std::size_t>(current_)] = add(current_);
}

Clock::time_point VirtualSockets::next_due(End& sender) {
  sender.last_due = std::max(sender.last_due, timetable_.now() + random_.time(delay_max_));
  return sender.last_due;
}

int VirtualSockets::connect(const Address& address) {
  const auto* in = reinterpret_cast<const sockaddr_in*>(&address.storage);
  const int rank = ntohs(in->sin_port) - kFirstPort;
  const int fd = add(current_);
  timetable_.at(next_due(ends_[fd]), [this, rank, fd] { arrive_at(rank, fd); });
  return fd;
}

/// The server's system answers.
void VirtualSockets::arrive_at(int server_rank, int client) {
  if (find(client) == nullptr) return;
  End* listener = find(listeners_[static_cast<std::size_t>(server_rank)]);
  const int server = listener != nullptr ? add(server_rank) : -1;
  if (listener != nullptr) {
    ends_[server].peer = client;
    ends_[server].connected = true;
    listener->backlog.push_back(server);
    wake_(server_rank);
  }
  timetable_.after(random_.time(delay_max_), [this, client, server] {
    End* end = find(client);
    if (end == nullptr) {
      if (End* other = find(server)) other->ended = true, wake_(other->owner);
      return;
    }
    end->connected = server >= 0;
    end->refused = server < 0;
    end->peer = server;
    wake_(end->owner);
  });
}

int VirtualSockets::accept(int listener) {
  End* end = find(listener);
  if (end == nullptr || end->backlog.empty()) return errno = EAGAIN, -1;
  const int fd = end->backlog.front();
  end->backlog.pop_front();
  return fd;
}

int VirtualSockets::connection_error(int fd) {
  const End* end = find(fd);
  if (end == nullptr) return EBADF;
  return end->refused ? ECONNREFUSED : end->connected ? 0 : EINPROGRESS;
}

ssize_t VirtualSockets::send(int fd, const char* data, std::size_t bytes) {
  End* end = find(fd);
  if (end == nullptr || !end->connected) return errno = end == nullptr ? EBADF : EAGAIN, -1;
  timetable_.at(next_due(*end), [this, peer = end->peer, text = std::string(data, bytes)] {
    End* to = find(peer);
    if (to == nullptr || to->ended) return;
    to->arrived += text;
    wake_(to->owner);
  });
  return static_cast<ssize_t>(bytes);
}

ssize_t VirtualSockets::receive(int fd, char* data, std::size_t bytes, bool peek) {
  End* end = find(fd);
  if (end == nullptr) return errno = EBADF, -1;
  if (end->arrived.empty() && !end->ended) return errno = EAGAIN, -1;
  const std::size_t length = std::min(bytes, end->arrived.size());
  std::memcpy(data, end->arrived.data(), length);
  if (!peek) end->arrived.erase(0, length);
  return static_cast<ssize_t>(length);
}

void VirtualSockets::end_stream(End& sender) {
  if (sender.peer < 0) return;
  timetable_.at(next_due(sender), [this, peer = sender.peer] {
    End* to = find(peer);
    if (to == nullptr) return;
    to->ended = true;
    wake_(to->owner);
  });
}

void VirtualSockets::finish(int fd) {
  if (End* end = find(fd)) end_stream(*end);
}

void VirtualSockets::close(int fd) {
  End* end = find(fd);
  if (end == nullptr) return;
  end_stream(*end);
  const std::deque<int> waiting = std::move(end->backlog);
  ends_.erase(fd);
  for (const int each : waiting) close(each);
}

void VirtualSockets::kill(int rank) {
  std::vector<int> open;
  for (const auto& [fd, end] : ends_) {
    if (end.owner == rank) open.push_back(fd);
  }
  for (const int fd : open) close(fd);
}

void VirtualSockets::look(std::span<pollfd> entries) {
  for (pollfd& entry : entries) {
    entry.revents = 0;
    const End* end = find(entry.fd);
    if (end == nullptr) continue;
    const bool in = !end->arrived.empty() || end->ended || !end->backlog.empty();
    const bool out = end->connected || end->refused;
    if (in) entry.revents = static_cast<short>(entry.revents | (entry.events & POLLIN));
    if (out) entry.revents = static_cast<short>(entry.revents | (entry.events & POLLOUT));
  }
}

}  // namespace farandole::simulation
