// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/poller.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace farandole::tcp {
namespace {

Error system_error(const char* call) {
  return Error{ErrorKind::kInternal, std::string("tcp: ") + call + ": " + std::strerror(errno)};
}

}  // namespace

Result<std::unique_ptr<Poller>> Poller::create() {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) return system_error("epoll_create1");
  const int bell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (bell < 0) {
    Error error = system_error("eventfd");
    ::close(epoll);
    return error;
  }
  std::unique_ptr<Poller> poller(new Poller(epoll, bell));
  if (auto added = poller->add(bell, kBellToken); !added) return added.error();
  return poller;
}

Poller::~Poller() {
  ::close(bell_);
  ::close(epoll_);
}

Result<void> Poller::add(int fd, std::uint64_t token) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = token}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) return system_error("epoll_ctl");
  return {};
}

void Poller::want_output(int fd, std::uint64_t token, bool wanted) {
  epoll_event event{.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {.u64 = token}};
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
}

void Poller::remove(int fd) {
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

std::span<epoll_event> Poller::ready(std::span<epoll_event> events) {
  const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  std::size_t kept = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kBellToken) {
      std::uint64_t rings;
      [[maybe_unused]] const auto got = ::read(bell_, &rings, sizeof rings);
    } else {
      events[kept++] = event;
    }
  }
  return events.first(kept);
}

void Poller::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto sent = ::write(bell_, &one, sizeof one);
}

}  // namespace farandole::tcp
