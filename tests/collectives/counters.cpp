// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/counters.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <new>

namespace {
thread_local farandole::testing::Counters mine;
}

namespace farandole::testing {
Counters counters() {
  return mine;
}
}  // namespace farandole::testing

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(std::size_t size) {
  ++mine.allocations;
  if (void* block = std::malloc(size)) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept {
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept {
  std::free(block);
}

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static const auto next = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++mine.locks;
  return next(mutex);
}
#endif
