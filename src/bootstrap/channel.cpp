// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/channel.hpp"

#include <algorithm>
#include <cerrno>

#include "bootstrap/sockets.hpp"

namespace farandole {
namespace {

ssize_t send_now(int fd, const char* data, std::size_t bytes) {
  if (Sockets* sockets = Sockets::installed()) return sockets->send(fd, data, bytes);
  return ::send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t receive_now(int fd, char* data, std::size_t bytes, bool peek = false) {
  if (Sockets* sockets = Sockets::installed()) return sockets->receive(fd, data, bytes, peek);
  return ::recv(fd, data, bytes, MSG_DONTWAIT | (peek ? MSG_PEEK : 0));
}

}  // namespace

std::size_t PollSet::add(int fd, short events) {
  entries_.push_back(pollfd{fd, events, 0});
  return entries_.size() - 1;
}

void PollSet::wait() {
  if (Sockets* sockets = Sockets::installed()) return sockets->look(entries_);
  int milliseconds = -1;
  if (wake_ != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake_ - Clock::now()).count();
    milliseconds = static_cast<int>(std::clamp<decltype(left)>(left, 0, 60'000));
  }
  if (poll(entries_.data(), entries_.size(), milliseconds) >= 0) return;
  for (pollfd& entry : entries_) entry.revents = 0;  // a signal; the loop turns once more
}

void Channel::send(std::string_view bytes) {
  if (broken_) return;
  output_.append(bytes);
  flush();
}

void Channel::flush() {
  std::size_t done = 0;
  while (done < output_.size()) {
    const ssize_t sent = send_now(fd(), output_.data() + done, output_.size() - done);
    if (sent >= 0) {
      done += static_cast<std::size_t>(sent);
    } else if (errno != EINTR) {
      broken_ = errno != EAGAIN && errno != EWOULDBLOCK;
      break;
    }
  }
  output_.erase(0, broken_ ? output_.size() : done);
}

void Channel::finish() {
  broken_ = true;
  if (Sockets* sockets = Sockets::installed()) return sockets->finish(fd());
  shutdown(fd(), SHUT_WR);
}

bool Channel::hung_up() const {
  char next;
  return receive_now(fd(), &next, 1, true) == 0;
}

std::string Channel::read(std::size_t bytes_max) {
  std::string bytes(bytes_max, '\0');
  for (;;) {
    const ssize_t got = receive_now(fd(), bytes.data(), bytes_max);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    ended_ = got <= 0 && bytes_max > 0;
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
  return {};
}

}  // namespace farandole
