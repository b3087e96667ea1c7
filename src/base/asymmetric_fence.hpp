// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace farandole {

/// Orders a store before the loads that follow it, on two sides of which one runs rarely: the rare
/// side pays for both [P1202R5, membarrier(2)].
///
/// Each side stores what the other one reads, then reads what the other one stores: a thread that
/// publishes work checks whether its consumer sleeps; the consumer says that it sleeps, then checks
/// for work once more. At least one of them must see the other's store. With two sequentially
/// consistent stores, each side waits until its store has left the core, and a store to a cache
/// line that another core polls takes as long as a transfer of that line. Here the frequent side
/// calls store() and goes on. The rare side stores, then calls heavy(), which interrupts every core
/// that runs a thread of a registered process, this one or another. That takes 9 us while another
/// core is busy, else 0.5 us (virtual machine, AMD EPYC).
///
/// Threads   any.
class AsymmetricFence {
 public:
  /// Held by a job of this process while it uses the fence. A job that starts while others hold one
  /// takes the fence as it is, enabled or not.
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

  /// Registers this process; false if the kernel has no such fence. Takes 8 to 16 ms in a process
  /// with threads. Before that, and without the fence, store() is sequentially consistent.
  static bool enable() {
    const bool registered = call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
    interrupts_.store(registered, std::memory_order_relaxed);
    enabled_.store(registered, std::memory_order_relaxed);
    return registered;
  }
  /// For use when some rare side that this process meets does not call heavy(). If the process has
  /// other jobs that use the fence, heavy() keeps its effect, since their frequent sides may rely
  /// on it.
  static void disable() {
    const std::lock_guard lock(users_mutex_);
    enabled_.store(false, std::memory_order_relaxed);
    if (users_ <= 1) interrupts_.store(false, std::memory_order_relaxed);
  }
  static bool enabled() { return enabled_.load(std::memory_order_relaxed); }
  /// Whether heavy() has an effect: while the fence is enabled, or another job may rely on it.
  static bool interrupts() { return interrupts_.load(std::memory_order_relaxed); }

  /// For the frequent side. Either its later loads see what the rare side stored before heavy(), or
  /// the rare side's loads after heavy() see this store.
  template <class T>
  static void store(std::atomic<T>& field, T value) {
    if (enabled()) {
      field.store(value, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      field.store(value, std::memory_order_seq_cst);
    }
  }
  /// For the rare side, between its sequentially consistent store and its loads.
  static void heavy() {
    if (interrupts()) call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  }

 private:
  static bool call(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }
  inline static std::atomic<bool> enabled_{false};     // for store(), on the frequent side
  inline static std::atomic<bool> interrupts_{false};  // for heavy(), on the rare side
  inline static std::mutex users_mutex_;
  inline static int users_ = 0;
};

}  // namespace farandole
