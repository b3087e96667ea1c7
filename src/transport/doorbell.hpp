// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/asymmetric_fence.hpp"
#include "device/cpu/memory.hpp"
#include "farandole/result.hpp"

namespace farandole {

/// Wakes a sleeping engine, from this process or another one on the host.
///
/// The sleeper arms a word that its peers can read, looks for work once more, and sleeps on fd(). A
/// ringer publishes its work with AsymmetricFence::store() or a sequentially consistent store, so
/// that at least one side sees what the other wrote. It then calls ring(), which costs one load
/// unless the word is armed; ringing disarms it. The wake-up is a datagram to a socket in Linux's
/// abstract name space: there is no file and nothing to clean up. A datagram of another program
/// only causes a spurious wake-up.
///
/// Threads   arm(), disarm() and drain() from the sleeper; ring() from any thread.
class Doorbell {
 public:
  /// Where a rank's word lies in its library-owned memory, which its peers map.
  static constexpr std::size_t kWordOffset = 64;
  static std::atomic<std::uint32_t>& word_in(Memory& memory) {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(memory.header() + kWordOffset);
  }

  /// `armed` lives in memory that all ringers map, and outlives the doorbell.
  static Result<std::unique_ptr<Doorbell>> create(std::atomic<std::uint32_t>& armed);
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  int fd() const { return fd_; }
  const std::string& address() const { return address_; }
  void arm() {
    armed_.store(1, std::memory_order_seq_cst);
    AsymmetricFence::heavy();
  }
  void disarm() { armed_.store(0, std::memory_order_relaxed); }
  void drain();
  void ring() { ring(armed_, address_, fd_); }

  /// Rings the doorbell whose word and address a peer published. `from_fd` is any Doorbell's fd.
  static void ring(std::atomic<std::uint32_t>& armed, const std::string& address, int from_fd) {
    if (armed.load(std::memory_order_seq_cst) != 0) disarm_and_wake(armed, address, from_fd);
  }

  /// Whether the doorbell at this address can be rung from here. Its owner gets a spurious wake-up.
  static bool reachable(const std::string& address, int from_fd);

 private:
  static void disarm_and_wake(std::atomic<std::uint32_t>& armed, const std::string& address,
                              int from_fd);
  Doorbell(int fd, std::string address, std::atomic<std::uint32_t>& armed)
      : fd_(fd), address_(std::move(address)), armed_(armed) {}
  int fd_;
  std::string address_;
  std::atomic<std::uint32_t>& armed_;
};

}  // namespace farandole
