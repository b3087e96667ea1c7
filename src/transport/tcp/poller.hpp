// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <span>

#include "farandole/result.hpp"

namespace farandole::tcp {

/// An epoll descriptor over the sockets of a transport, level-triggered. It polls readable itself
/// when a socket is ready or wake() was called.
///
/// Threads   wake() from any thread; everything else from the engine's driver.
class Poller {
 public:
  /// Errors    kInternal when the system gives no descriptor.
  static Result<std::unique_ptr<Poller>> create();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  int fd() const { return epoll_; }

  /// Reports `token` when `fd` can be read, has hung up, or, if asked for, can be written.
  Result<void> add(int fd, std::uint64_t token);
  void want_output(int fd, std::uint64_t token, bool wanted);
  void remove(int fd);

  /// Events that are ready now, at most `events.size()`; wake-ups are used up and not reported.
  std::span<epoll_event> ready(std::span<epoll_event> events);
  void wake();

 private:
  Poller(int epoll, int bell) : epoll_(epoll), bell_(bell) {}
  static constexpr std::uint64_t kBellToken = ~std::uint64_t{0};
  const int epoll_;
  const int bell_;
};

}  // namespace farandole::tcp
