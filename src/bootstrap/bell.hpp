// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <sys/eventfd.h>

#include <csignal>

#include "bootstrap/socket.hpp"

namespace farandole {

/// Wakes a control thread from its poll().
class Bell {
 public:
  Bell() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  explicit operator bool() const { return static_cast<bool>(event_); }
  void ring() const { (void)eventfd_write(event_.fd(), 1); }
  void drain() const {
    eventfd_t count;
    (void)eventfd_read(event_.fd(), &count);
  }
  int fd() const { return event_.fd(); }

 private:
  Descriptor event_;
};

/// While one exists, threads that are started block the process's signals, so that other threads
/// get them, except for those that a thread raises itself.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace farandole
