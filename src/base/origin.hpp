// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "farandole/result.hpp"

namespace farandole {

/// The process that something was made in. A child that was forked from it has a copy of the object
/// but none of its threads, and locks that nobody will release; what the copy shares with the
/// parent, sockets and mapped files, is the parent's to use.
///
/// here() costs a load, since the C library tells a forked child so. A child made by the bare
/// system call, which runs no such handler, is not noticed.
///
/// Threads   any.
class Origin {
 public:
  explicit Origin(int rank = -1) : forks_(count()), pid_(::getpid()), rank_(rank) {}
  bool here() const { return forks_ == forks.load(std::memory_order_relaxed); }
  /// What a call gets that is made elsewhere; kInvalidArgument.
  Error error(std::string_view call) const;

 private:
  /// After the handler is in place.
  static std::uint32_t count();
  inline static std::atomic<std::uint32_t> forks{0};  // between the first process and this one

  std::uint32_t forks_;
  int pid_, rank_;
};

/// Deletes what was made here and leaves a copy in a forked child alone, whose destructor would
/// wait for threads that are not there.
template <class T>
struct DeleteAtOrigin {
  void operator()(T* object) const {
    if (origin.here()) delete object;
  }
  Origin origin;
};

}  // namespace farandole
