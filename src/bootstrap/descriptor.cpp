// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "bootstrap/socket.hpp"
#include "bootstrap/sockets.hpp"

namespace farandole {
namespace {

/// The descriptors that a forked child closes. Tickets are never used twice, so that an object
/// inherited by the child does not close what the child opened later under the same number.
struct ForkRegister {
  std::mutex mutex;
  std::uint64_t last_ticket = 0;
  std::map<std::uint64_t, int> open;
};

void close_now(int fd) {
  if (Sockets* sockets = Sockets::installed()) return sockets->close(fd);
  ::close(fd);
}

ForkRegister& fork_register() {
  static ForkRegister* const instance = [] {
    auto* made = new ForkRegister;  // never destroyed, since static descriptors outlive it
    pthread_atfork([] { fork_register().mutex.lock(); }, [] { fork_register().mutex.unlock(); },
                   [] {
                     for (const auto& [ticket, fd] : fork_register().open) ::close(fd);
                     fork_register().open.clear();
                     fork_register().mutex.unlock();
                   });
    return made;
  }();
  return *instance;
}

}  // namespace

Descriptor::Descriptor(int fd) : fd_(fd) {
  if (fd < 0) return;
  ForkRegister& all = fork_register();
  const std::lock_guard lock(all.mutex);
  ticket_ = ++all.last_ticket;
  all.open.emplace(ticket_, fd);
}

Descriptor Descriptor::opened_by(const std::function<int()>& open) {
  ForkRegister& all = fork_register();
  Descriptor result;
  const std::lock_guard lock(all.mutex);
  result.fd_ = open();
  if (result.fd_ < 0) return result;
  result.ticket_ = ++all.last_ticket;
  all.open.emplace(result.ticket_, result.fd_);
  return result;
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this == &other) return *this;
  close();
  fd_ = std::exchange(other.fd_, -1);
  ticket_ = std::exchange(other.ticket_, 0);
  return *this;
}

void Descriptor::close() {
  if (fd_ < 0) return;
  ForkRegister& all = fork_register();
  const std::lock_guard lock(all.mutex);
  if (all.open.erase(ticket_) != 0) close_now(fd_);
  fd_ = -1;
}

int Descriptor::release() {
  ForkRegister& all = fork_register();
  const std::lock_guard lock(all.mutex);
  all.open.erase(ticket_);
  return std::exchange(fd_, -1);
}

}  // namespace farandole
