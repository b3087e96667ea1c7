// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/memory_limits.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace farandole {
namespace {

// Stacks and heaps of threads that start later.
constexpr std::size_t kElse = std::size_t{256} << 20;

std::size_t limit(__rlimit_resource resource) {
  rlimit found{};
  const bool limited = getrlimit(resource, &found) == 0 && found.rlim_cur != RLIM_INFINITY;
  return limited ? static_cast<std::size_t>(found.rlim_cur) : MemoryLimits::kNone;
}

}  // namespace

MemoryLimits MemoryLimits::now() {
  MemoryLimits limits;
  limits.address_space = limit(RLIMIT_AS);
  limits.file = limit(RLIMIT_FSIZE);
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  limits.used = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return limits;
}

std::size_t MemoryLimits::room() const {
  return address_space == kNone ? kNone : address_space - std::min(used, address_space);
}

bool MemoryLimits::holds(std::size_t room, std::size_t bytes) {
  return room == kNone || (room > kElse && bytes <= room - kElse);
}

std::size_t MemoryLimits::share(std::size_t room, std::size_t memories) {
  return room / 2 / memories / kPage * kPage;
}

std::string MemoryLimits::text() const {
  std::string text;
  if (address_space != kNone) {
    text += "; the limit on address space (ulimit -v) is " + std::to_string(address_space) +
            " bytes, of which " + std::to_string(used) + " are in use";
  }
  if (file != kNone) {
    text += "; the limit on files (ulimit -f) is " + std::to_string(file) + " bytes";
  }
  return text;
}

}  // namespace farandole
