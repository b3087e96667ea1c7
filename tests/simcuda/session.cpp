// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simcuda/session.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "simcuda/settings.hpp"

namespace simcuda {

const Settings& settings() {
  static const Settings found;
  return found;
}

void report(const std::string& line) {
  const std::string text = "simcuda[" + std::to_string(::getpid()) + "]: " + line + "\n";
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

void die(int status, const std::string& line) {
  report(line);
  ::_exit(status);
}

void VectorClock::join(const VectorClock& other) {
  for (std::size_t i = 0; i < at.size(); ++i) at[i] = std::max(at[i], other.at[i]);
}

Session& session() {
  static Session& shared = [&]() -> Session& {
    const std::string& path = settings().session;
    const int fd = path.empty() ? ::memfd_create("simcuda", MFD_CLOEXEC)
                                : ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ::ftruncate(fd, sizeof(Session)) != 0) {
      die(kUnusable, "cannot open the session's file '" + path + "'");
    }
    void* const memory =
        ::mmap(nullptr, sizeof(Session), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (memory == MAP_FAILED) die(kUnusable, "cannot map the session's file");
    return *static_cast<Session*>(memory);  // a new file is zero, as the words begin
  }();
  return shared;
}

void host_saw(const VectorClock& clock) {
  for (std::size_t i = 0; i < clock.at.size(); ++i) {
    std::atomic<std::uint32_t>& seen = session().seen_by_hosts[i];
    std::uint32_t before = seen.load();
    while (before < clock.at[i] && !seen.compare_exchange_weak(before, clock.at[i])) {
    }
  }
}

VectorClock host_clock() {
  VectorClock clock;
  for (std::size_t i = 0; i < clock.at.size(); ++i) clock.at[i] = session().seen_by_hosts[i];
  return clock;
}

SharedLock::SharedLock(std::atomic<std::uint32_t>& word) : word_(word) {
  constexpr int kTriesMax = 100'000;
  for (int tries = 0; word_.exchange(1) != 0 && tries < kTriesMax; ++tries) ::usleep(10);
}

}  // namespace simcuda
