// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "delegates/delegate.hpp"
#include "farandole/result.hpp"
#include "model/network.hpp"
#include "schedule/schedule.hpp"

// Times schedules on a machine: the same symbolic schedules that the engine runs.
//
//   message   starts when both its sender and its receiver have come to it, and takes what
//             model/machine.hpp says; links are shared by max-min fairness from the moment that
//             its first byte leaves, alpha and latency after the start
//   round     a rank enters the next one when all its actions of this one are finished; a
//             reduction follows its message, at the receiver. Of receives that follow each other
//             (`after_previous`) the messages come at once; their reductions wait for each other
//   stage     a rank pays for a call when it enters its first round with messages of a stage, and
//             what it sends in that round is longer by fill_chunks
//   bytes     chunks are equally long real numbers: what a call rounds to elements is not rounded
namespace farandole {

/// One collective, and who makes it.
struct SimulatedCall {
  const Schedule* schedule = nullptr;  // outlives the simulation
  double bytes = 0;                    // of the larger side, per rank
  std::vector<std::int32_t> ranks;     // [schedule ranks]: of the network. Empty: 0, 1, 2, ...
  std::vector<double> start_seconds;   // [schedule ranks]: when each arrives. Empty: at 0
  /// In place of the schedule. Its ranks end together, its price after the last has arrived; it
  /// uses no link that others share. A rank that is slow makes its start-up longer.
  struct ByDelegate {
    const Delegate* delegate = nullptr;
    Collective collective = Collective::kAllreduce;
    std::int64_t rank_count = 1;
  };
  std::optional<ByDelegate> by_delegate = std::nullopt;
};

enum class SimulationPath : std::uint8_t {
  kAuto,    // rounds; events where that is not exact and there are at most a million messages
  kEvents,  // exact under the model: rates change whenever a message starts or ends
  kRounds,  // a clock per rank, rates solved once per round
};
inline constexpr const char* kSimulationPathNames[] = {"auto", "events", "rounds"};

struct SimulationOptions {
  SimulationPath path = SimulationPath::kAuto;
  std::vector<double> slow_down;  // [network ranks]: factors of calls, copies, reductions. Empty: 1
  std::size_t busiest_links = 8;  // to report
  bool skip_repeats = true;       // kRounds: leap over iterations that repeat the last one
};

struct Simulation {
  double seconds = 0;  // until the last rank has finished, from time 0
  /// kEvents: always. kRounds: in every round, messages that share a link began and ended together
  /// and found it idle; if not, the time is a bulk-synchronous estimate.
  bool exact = true;
  SimulationPath path = SimulationPath::kEvents;  // the one that was taken
  std::int64_t messages = 0;
  double bytes = 0;                                 // of all messages
  std::vector<std::vector<double>> finish_seconds;  // [call][rank of the schedule]
  struct Stage {
    std::size_t call = 0;
    std::string name;
    double seconds = 0;  // at the rank of the call that finishes last
  };
  std::vector<Stage> stages;
  struct LinkUse {
    std::string name;
    double bytes = 0, utilization = 0;  // of capacity * seconds
  };
  std::vector<LinkUse> busiest;  // by utilization, then by number
};

/// Simulates calls on one network, and remembers how sets of messages shared its links.
///
/// Memory    kRounds: about 200 bytes per rank and different round. kEvents: about 200 bytes per
///           rank and round that some rank is in.
/// Threads   any; run() by one after the other.
class Simulator {
 public:
  explicit Simulator(Network network);
  Simulator(Simulator&&) noexcept;
  Simulator& operator=(Simulator&&) noexcept;
  ~Simulator();

  const Network& network() const;
  /// Errors    kInvalidArgument naming the argument; so does a schedule that never ends, which
  ///           verify() would have found. kUnsupported: kRounds with several calls, or with a
  ///           schedule whose ranks have rounds of their own to do while a message waits for one
  ///           of another round.
  Result<Simulation> run(std::span<const SimulatedCall> calls, const SimulationOptions& options);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace farandole
