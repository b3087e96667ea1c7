// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "farandole/result.hpp"

namespace farandole {

/// The process in which an object was made. A child that was forked from it has a copy of the
/// object but none of its threads, and locks that may never be released. Sockets and mapped files,
/// which the copy shares with the parent, are for the parent to use.
///
/// here() costs one load, since a handler of the C library's fork() counts forks. A child made by
/// the bare system call, which runs no such handler, is not noticed.
///
/// Threads   any.
class Origin {
 public:
  explicit Origin(int rank = -1) : forks_(count()), pid_(::getpid()), rank_(rank) {}
  bool here() const { return forks_ == forks.load(std::memory_order_relaxed); }
  /// The error of a call that is made in another process; kInvalidArgument.
  Error error(std::string_view call) const;

 private:
  /// The count of forks, once the handler is in place.
  static std::uint32_t count();
  inline static std::atomic<std::uint32_t> forks{0};  // between the first process and this one

  std::uint32_t forks_;
  int pid_, rank_;
};

/// Deletes an object in the process that made it. In a forked child the copy is left alone, since
/// its destructor would wait for threads that are not there.
template <class T>
struct DeleteAtOrigin {
  void operator()(T* object) const {
    if (origin.here()) delete object;
  }
  Origin origin;
};

}  // namespace farandole
