// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace farandole {

/// Where two ranks are, as far as the cost of their messages goes.
struct Distance {
  bool same_host = true;
  /// Ranks of the host, and its cores; 0: one per rank.
  double ranks_per_host = 1, cores = 0;

  bool shares_cores() const { return cores > 0 && ranks_per_host > cores; }
  double ranks_per_core() const { return shares_cores() ? ranks_per_host / cores : 1; }
};

/// The cost of messages over one transport, as the transport states it. The planner makes a machine
/// of it if none was described. The numbers are good enough to decide between algorithms on usual
/// machines; they do not predict times.
struct MessageCost {
  double alpha = 0;             // seconds until a message is there
  double overhead = 0;          // seconds of both ends for each further message of a round
  double bytes_per_second = 0;  // of one rank
  double fill_chunks = 0;       // how much of its first message a phase waits for
  double crowding = 0;          // seconds for each message of a round, on either side
  /// Messages go through memory, which a rank reads and writes at the same time. Otherwise one
  /// thread copies both what the rank sends and what it receives.
  bool through_memory = false;
  double reduce_bytes_per_second = 0;  // of a rank that reduces what arrives
};

}  // namespace farandole
