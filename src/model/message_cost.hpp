// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace farandole {

/// Where two ranks are, as far as the cost of their messages goes.
struct Distance {
  bool same_host = true;
  /// Of a host with so many ranks, its cores; 0: one per rank.
  double ranks_per_host = 1, cores = 0;

  bool shares_cores() const { return cores > 0 && ranks_per_host > cores; }
  double ranks_per_core() const { return shares_cores() ? ranks_per_host / cores : 1; }
};

/// What messages cost that go one way: what a transport says of itself, and what the planner makes
/// a machine of where nobody has described one. The numbers decide between algorithms well on usual
/// machines; they predict no times.
struct MessageCost {
  double alpha = 0;             // seconds until a message is there
  double overhead = 0;          // seconds of both ends for each message more of a round
  double bytes_per_second = 0;  // of one rank
  double fill_chunks = 0;       // of its first message a phase waits for so much
  double crowding = 0;          // seconds for each message of a round, on either side
  /// Ranks meet in memory, which a rank reads and writes at a time. Otherwise the same thread
  /// copies what it sends and what it receives.
  bool through_memory = false;
  double reduce_bytes_per_second = 0;  // of a rank that adds what arrives
};

}  // namespace farandole
