// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "device/cpu/memory.hpp"

namespace farandole {

/// KiB that the mapping of this address has in huge pages.
inline std::size_t huge_kib(const std::byte* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
      inside = begin <= wanted && wanted < end;
    } else if (inside && std::sscanf(line.c_str(), "ShmemPmdMapped: %llu kB", &kib) == 1) {
      return kib;
    }
  }
  return 0;
}

/// Whether this system gives a file in memory huge pages when asked.
inline bool has_huge_pages() {
  const int fd = ::memfd_create("probe", MFD_CLOEXEC);
  EXPECT_EQ(::ftruncate(fd, Memory::kHugePage), 0);
  std::byte* page = Memory::map(fd, Bytes{Memory::kHugePage});
  EXPECT_NE(page, nullptr);
  page[0] = std::byte{1};
  const bool given = ::madvise(page, Memory::kHugePage, 25) == 0;  // MADV_COLLAPSE
  ::munmap(page, Memory::kHugePage);
  ::close(fd);
  return given;
}

}  // namespace farandole
