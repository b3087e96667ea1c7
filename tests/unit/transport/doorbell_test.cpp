// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/doorbell.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <fstream>
#include <string>
#include <thread>

namespace farandole {
namespace {

std::unique_ptr<Doorbell> make(std::atomic<std::uint32_t>& armed) {
  auto bell = Doorbell::create(armed);
  EXPECT_TRUE(bell) << (bell ? "" : bell.error().message);
  return *std::move(bell);
}

bool rung(const Doorbell& bell, int timeout_ms = 0) {
  pollfd poll_fd = {bell.fd(), POLLIN, 0};
  return ::poll(&poll_fd, 1, timeout_ms) == 1;
}

// Goal: a ring wakes an armed sleeper once, and is free of effect on one that is awake.
// Method: ring in each state and look at the descriptor.
TEST(Doorbell, RingsOnlyWhenArmed) {
  std::atomic<std::uint32_t> armed{0}, other_armed{0};
  const auto bell = make(armed);
  const auto other = make(other_armed);
  bell->ring();
  EXPECT_FALSE(rung(*bell));
  bell->arm();
  Doorbell::ring(armed, bell->address(), other->fd());
  EXPECT_TRUE(rung(*bell));
  EXPECT_EQ(armed, 0u) << "ringing disarms";
  bell->drain();
  EXPECT_FALSE(rung(*bell));
  bell->arm();
  bell->disarm();
  bell->ring();
  EXPECT_FALSE(rung(*bell));
  EXPECT_FALSE(rung(*other));
}

// Goal: ringing a full or a vanished bell neither blocks nor fails; reachable() tells them apart.
// Method: fill the queue without draining; destroy the bell and ring its address.
TEST(Doorbell, FullAndVanishedBellsAreHarmless) {
  std::atomic<std::uint32_t> armed{0}, other_armed{0};
  const auto other = make(other_armed);
  std::string address;
  {
    const auto bell = make(armed);
    address = bell->address();
    for (int i = 0; i < 10'000; ++i) {
      bell->arm();
      Doorbell::ring(armed, address, other->fd());
    }
    EXPECT_TRUE(Doorbell::reachable(address, other->fd()));
    bell->drain();
    EXPECT_FALSE(rung(*bell));
  }
  armed = 1;
  Doorbell::ring(armed, address, other->fd());
  EXPECT_FALSE(Doorbell::reachable(address, other->fd()));
  EXPECT_FALSE(Doorbell::reachable(std::string(500, 'x'), other->fd()));
}

// Goal: no bell has a path, so nothing is left behind.
// Method: the kernel's table shows the address as an abstract one (with an @).
TEST(Doorbell, AddressIsAbstract) {
  std::atomic<std::uint32_t> armed{0};
  const auto bell = make(armed);
  std::ifstream table("/proc/net/unix");
  ASSERT_TRUE(table) << "/proc/net/unix cannot be read";
  const std::string all((std::istreambuf_iterator<char>(table)), std::istreambuf_iterator<char>());
  EXPECT_NE(all.find(" @" + bell->address() + "\n"), std::string::npos);
}

// Goal: arm, look again, sleep loses no wake-up.
// Method: one thread publishes numbers and rings; the other one sleeps whenever there is no new
// one. A lost wake-up shows as a poll that times out.
TEST(Doorbell, NoWakeUpIsLost) {
  std::atomic<std::uint32_t> armed{0};
  const auto bell = make(armed);
  std::atomic<int> published{0}, seen{0};
  constexpr int kCount = 20'000;
  std::thread publisher([&] {
    for (int i = 1; i <= kCount; ++i) {
      while (i - seen.load() > 2) std::this_thread::yield();
      published.store(i, std::memory_order_seq_cst);
      bell->ring();
    }
  });
  while (seen < kCount) {
    if (published.load(std::memory_order_seq_cst) > seen) {
      seen = published.load();
      continue;
    }
    bell->arm();
    if (published.load(std::memory_order_seq_cst) == seen) {
      const bool woken = rung(*bell, 30'000);
      EXPECT_TRUE(woken);
      if (!woken) break;
    }
    bell->disarm();
    bell->drain();
  }
  seen = kCount;
  publisher.join();
}

}  // namespace
}  // namespace farandole
