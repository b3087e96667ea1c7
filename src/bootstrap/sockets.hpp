// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <span>

namespace farandole {

struct Address;

/// The socket calls of the control plane once it listens, with the system's conventions: they do
/// not block, and fail with -1 and errno. While an object is installed, it replaces the system's
/// sockets in the whole process, for simulations.
///
/// Threads   install() while no thread uses sockets.
class Sockets {
 public:
  virtual ~Sockets() = default;
  virtual int connect(const Address& address) = 0;
  virtual int accept(int listener) = 0;
  /// As connection_error() of socket.hpp.
  virtual int connection_error(int fd) = 0;
  virtual ssize_t send(int fd, const char* data, std::size_t bytes) = 0;
  virtual ssize_t receive(int fd, char* data, std::size_t bytes, bool peek) = 0;
  /// No more will be sent.
  virtual void finish(int fd) = 0;
  virtual void close(int fd) = 0;
  /// Fills in what is ready; does not wait.
  virtual void look(std::span<pollfd> entries) = 0;

  /// Null: the system's.
  static void install(Sockets* sockets) { installed_.store(sockets); }
  static Sockets* installed() { return installed_.load(std::memory_order_relaxed); }

 private:
  inline static constinit std::atomic<Sockets*> installed_{nullptr};
};

}  // namespace farandole
