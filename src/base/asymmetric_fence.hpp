// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace farandole {

/// Orders a store before the loads that follow it where one of two sides is rare: the rare side
/// pays for both [P1202R5, membarrier(2)].
///
/// Each side stores what the other one looks at, then looks itself: whoever publishes work looks
/// whether its taker sleeps, the taker says that it sleeps and looks for work once more. One of
/// them must see the other's store. With two sequentially consistent stores each waits until its
/// own has left the core, and a store to a line that another core polls takes as long as a hop of
/// that line. Here the frequent side calls store() and goes on; the rare one stores, then calls
/// heavy(), which interrupts every core that runs a thread of a registered process, of this one and
/// of others. That takes 9 us while another core is busy, 0.5 us else (virtual machine, AMD EPYC).
///
/// Threads   any.
class AsymmetricFence {
 public:
  /// A job of this process, while it uses the fence. One that comes while others use it takes the
  /// fence as they have it.
  class User {
   public:
    User() {
      const std::lock_guard lock(users_mutex_);
      if (users_++ == 0) enable();
    }
    ~User() {
      const std::lock_guard lock(users_mutex_);
      --users_;
    }
    User(const User&) = delete;
    User& operator=(const User&) = delete;
  };

  /// Registers this process, once; false if the kernel has no such fence. Takes 8 to 16 ms in a
  /// process with threads. Until then, and without it, store() is sequentially consistent.
  static bool enable() {
    const bool registered = call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
    interrupts_.store(registered, std::memory_order_relaxed);
    enabled_.store(registered, std::memory_order_relaxed);
    return registered;
  }
  /// For when some rare side that this process meets does not call heavy(). The frequent sides of
  /// another job that this process is in may still count on heavy() here.
  static void disable() {
    const std::lock_guard lock(users_mutex_);
    enabled_.store(false, std::memory_order_relaxed);
    if (users_ <= 1) interrupts_.store(false, std::memory_order_relaxed);
  }
  static bool enabled() { return enabled_.load(std::memory_order_relaxed); }

  /// The frequent side. Loads after it see what the rare side stored before heavy(), or else the
  /// rare side's loads after heavy() see this.
  template <class T>
  static void store(std::atomic<T>& field, T value) {
    if (enabled()) {
      field.store(value, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      field.store(value, std::memory_order_seq_cst);
    }
  }
  /// The rare side, between its sequentially consistent store and its loads.
  static void heavy() {
    if (interrupts_.load(std::memory_order_relaxed)) call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  }

 private:
  static bool call(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }
  inline static std::atomic<bool> enabled_{false};     // store() is the frequent side's
  inline static std::atomic<bool> interrupts_{false};  // heavy() is the rare side's
  inline static std::mutex users_mutex_;
  inline static int users_ = 0;
};

}  // namespace farandole
