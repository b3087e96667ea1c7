// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordination/clock_offset.hpp"

#include <algorithm>
#include <vector>

#include "base/clock.hpp"
#include "frontend/call.hpp"

namespace farandole {
namespace {

constexpr int kRounds = 8;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

Result<void> answer(Communicator& world, Rank asking) {
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t time = 0;
    if (auto asked = world.recv(&time, Count{1}, DType::kInt64, asking); !asked) return asked;
    time = now_ns();
    if (auto told = world.send(&time, Count{1}, DType::kInt64, asking); !told) return told;
  }
  return {};
}

Result<std::int64_t> ask(Communicator& world) {
  std::int64_t best = 0, shortest = INT64_MAX;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t sent = now_ns();
    std::int64_t there = sent;
    if (auto told = world.send(&there, Count{1}, DType::kInt64, Rank{0}); !told) {
      return told.error();
    }
    if (auto came = world.recv(&there, Count{1}, DType::kInt64, Rank{0}); !came) {
      return came.error();
    }
    const std::int64_t back = now_ns();
    if (back - sent >= shortest) continue;
    shortest = back - sent;
    best = there - (sent + back) / 2;
  }
  return best;
}

}  // namespace

Result<std::chrono::nanoseconds> clock_offset(Communicator& world, const Members& members) {
  // The lowest rank on each rank's host.
  std::vector<std::size_t> speakers;
  for (const Member& member : members) {
    const auto first = std::ranges::find(members, member.host_id, &Member::host_id);
    speakers.push_back(static_cast<std::size_t>(first - members.begin()));
  }
  const auto self = static_cast<std::size_t>(world.rank().value());
  std::int64_t own = 0;
  for (std::size_t rank = 1; self == 0 && rank < members.size(); ++rank) {
    if (speakers[rank] != rank) continue;
    if (auto told = answer(world, Rank{static_cast<int>(rank)}); !told) return told.error();
  }
  if (self != 0 && speakers[self] == self) {
    auto offset = ask(world);
    if (!offset) return offset.error();
    own = *offset;
  }
  std::vector<std::int64_t> all(members.size());
  auto told = world.allgather(&own, all.data(), Count{1}, DType::kInt64,
                              {.name = "clock offset", .purpose = kClockOffset});
  if (!told) return told.error();
  return std::chrono::nanoseconds(all[speakers[self]]);
}

}  // namespace farandole
