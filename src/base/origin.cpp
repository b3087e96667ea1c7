// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "base/origin.hpp"

#include <pthread.h>

#include <string>

namespace farandole {

std::uint32_t Origin::count() {
  static const int installed =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)installed;  // fails at worst with ENOMEM, as any allocation may
  return forks.load(std::memory_order_relaxed);
}

Error Origin::error(std::string_view call) const {
  const std::string parent = rank_ < 0 ? "process" : "rank " + std::to_string(rank_) + ", process";
  return Error{ErrorKind::kInvalidArgument,
               std::string(call) + ": this process, " + std::to_string(::getpid()) +
                   ", was forked from " + parent + " " + std::to_string(pid_) +
                   ", which alone belongs to the job; call it there, or start processes that join "
                   "a job themselves by other means than fork (in Python multiprocessing's "
                   "'spawn')."};
}

}  // namespace farandole
