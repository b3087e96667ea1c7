// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/line_time.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.hpp"

namespace farandole {
namespace {

constexpr std::uint32_t kBursts = 31, kRoundTrips = 100;
constexpr std::size_t kLineBytes = 64;
constexpr std::uint32_t kLooksPerClock = 1024;  // looking at the clock takes as long as a line

/// What the two threads share: each writes one line and reads the other.
struct Lines {
  alignas(kLineBytes) std::atomic<std::uint32_t> ping{0};
  alignas(kLineBytes) std::atomic<std::uint32_t> pong{0};
  alignas(kLineBytes) std::atomic<bool> stopped{false};
};

bool bind_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core < 0 || core >= CPU_SETSIZE) return false;
  CPU_SET(static_cast<unsigned>(core), &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

/// False if it has not come by `end`, or the other thread has stopped.
bool await(const Lines& lines, const std::atomic<std::uint32_t>& line, std::uint32_t turn,
           Clock::time_point end) {
  for (std::uint32_t look = 1; line.load(std::memory_order_acquire) != turn; ++look) {
    if (look % kLooksPerClock != 0) continue;
    if (lines.stopped.load(std::memory_order_relaxed) || Clock::now() > end) return false;
  }
  return true;
}

void answer(Lines& lines, int core, Clock::time_point end) {
  bool goes_on = bind_to(core);
  for (std::uint32_t turn = 1; goes_on && turn <= kBursts * kRoundTrips; ++turn) {
    goes_on = await(lines, lines.ping, turn, end);
    if (goes_on) lines.pong.store(turn, std::memory_order_release);
  }
  if (!goes_on) lines.stopped.store(true);
}

/// The times of the bursts; fewer than kBursts if one of the threads had to stop.
std::vector<Clock::duration> ask(Lines& lines, int core, Clock::time_point end) {
  std::vector<Clock::duration> took;
  bool goes_on = bind_to(core);
  std::uint32_t turn = 0;
  while (goes_on && took.size() < kBursts) {
    const auto begin = Clock::now();
    for (std::uint32_t i = 0; goes_on && i < kRoundTrips; ++i) {
      lines.ping.store(++turn, std::memory_order_release);
      goes_on = await(lines, lines.pong, turn, end);
    }
    if (goes_on) took.push_back(Clock::now() - begin);
  }
  if (!goes_on) lines.stopped.store(true);
  return took;
}

}  // namespace

std::optional<std::chrono::duration<double>> line_time(int core, int other,
                                                       std::chrono::milliseconds give_up) {
  if (core == other) return std::nullopt;
  Lines lines;
  const auto end = Clock::now() + give_up;
  std::vector<Clock::duration> took;
  {
    const std::jthread asks([&] { took = ask(lines, core, end); });  // the caller stays unbound
    const std::jthread answers([&] { answer(lines, other, end); });
  }
  if (took.size() < kBursts) return std::nullopt;
  std::ranges::nth_element(took, took.begin() + kBursts / 2);
  return std::chrono::duration<double>(took[kBursts / 2]) / (2 * kRoundTrips);
}

}  // namespace farandole
