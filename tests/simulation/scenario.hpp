// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "farandole/types.hpp"

namespace farandole::simulation {

/// What goes wrong in a run; one kind per run, so that it is known what has to come of it.
enum class Fault : std::uint8_t {
  kNone,
  kDeath,     // one to three processes die
  kPause,     // a process stands still, not long enough to be given up
  kSilence,   // a process stands still and is given up, perhaps to come back
  kLate,      // a rank calls long after the time-out of the others
  kMismatch,  // ranks call one operation unlike things
  kExcuse,    // a rank cannot start an operation
  kFreed,     // a rank frees a communicator that others still use
  kOutage,    // links carry nothing for a while
  kStall,     // one link carries nothing for ever, though both ends live
  kBroken,    // a connection breaks, and the control plane has no verdict
  kMixed,     // a death, an outage and perhaps a mismatch
};
inline constexpr int kFaultCount = 12;
std::string name(Fault fault);

struct GroupPlan {
  std::uint32_t communicator = 0;
  std::vector<int> ranks;  // of the world
  bool contains(int rank) const;
  int rank_of(int world_rank) const;  // -1: no member
};

/// How one rank, or most, call a collective.
struct CallPlan {
  Collective collective = Collective::kAllreduce;
  std::string algorithm;
  int root = 0;  // in the group
  std::size_t count = 0;
  DType dtype = DType::kInt32;
  Reduction reduction = Reduction::kSum;
  bool in_place = false;
  bool operator==(const CallPlan&) const = default;
};

struct OperationPlan {
  std::size_t group = 0;
  std::uint32_t sequence = 0;  // on the communicator
  CallPlan call;
  std::vector<int> differing;  // world ranks that call `otherwise`
  std::optional<CallPlan> otherwise = std::nullopt;
  std::optional<int> excused = std::nullopt;  // this world rank cannot start it
  bool repeats = false;                       // the same call as the one before on its communicator
  std::vector<Clock::duration> think;         // [world ranks]: before the call
};

/// A whole run, drawn from a seed.
struct Scenario {
  std::uint64_t seed = 0;
  int rank_count = 2;
  Fault fault = Fault::kNone;
  std::vector<GroupPlan> groups;
  std::vector<OperationPlan> operations;  // every rank calls its own in this order
  int window = 1;                         // calls in flight per rank
  bool quits = true;                      // whoever gets an error leaves, but after a mismatch
  Clock::duration timeout{};              // of an operation
  // Network and control plane.
  Clock::duration delay_max{}, late_max{};
  std::uint32_t late_every = 0;
  bool overtakes = true, follows = true;
  std::size_t eager_bytes = 64, piece_bytes = 64;
  std::uint32_t pieces_ahead = 1, late_cancels = 0;
  bool shipped_control = false;
  Clock::duration control_delay{}, detection{}, control_timeout{};
  // The fault.
  std::vector<int> victims;  // world ranks; of a link: from, to
  Clock::duration fault_at{}, fault_time{};
  std::vector<int> outage;  // of a mixed fault: the ends of a link that carries nothing meanwhile
  std::optional<std::size_t> freed_group = std::nullopt;
};

/// `rank_count` and `fault`: instead of what the seed gives.
Scenario draw_scenario(std::uint64_t seed, std::optional<int> rank_count = std::nullopt,
                       std::optional<Fault> fault = std::nullopt);

}  // namespace farandole::simulation
