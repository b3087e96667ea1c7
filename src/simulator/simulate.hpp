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
//   message   starts when both its sender and its receiver have reached it, and takes the time that
//             model/machine.hpp gives; it shares links by max-min fairness from the moment when
//             its first byte leaves, alpha and latency after the start
//   round     a rank enters the next one when all its actions of this one are finished; a
//             reduction follows its message, at the receiver. In a chain of receives
//             (`after_previous`) the messages do not wait for each other, their reductions do
//   stage     a rank pays for a call when it enters its first round with messages of a stage, and
//             its messages in that round are longer by fill_chunks
//   bytes     chunks have equal sizes, which are real numbers and not rounded to elements
namespace farandole {

/// One collective, and the ranks that call it.
struct SimulatedCall {
  const Schedule* schedule = nullptr;  // outlives the simulation
  double bytes = 0;                    // of a rank's larger buffer
  std::vector<std::int32_t> ranks;     // [schedule ranks]: of the network. Empty: 0, 1, 2, ...
  std::vector<double> start_seconds;   // [schedule ranks]: when each arrives. Empty: at 0
  /// In place of the schedule. All its ranks end together: when the last one has arrived and the
  /// delegate's price has passed. It shares no links with other calls. A slow rank makes its
  /// start-up longer.
  struct ByDelegate {
    const Delegate* delegate = nullptr;
    Collective collective = Collective::kAllreduce;
    std::int64_t rank_count = 1;
  };
  std::optional<ByDelegate> by_delegate = std::nullopt;
};

enum class SimulationPath : std::uint8_t {
  kAuto,    // rounds; events if unsupported there, or inexact with at most a million messages
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
/// Threads   any; calls of run() run one after the other.
class Simulator {
 public:
  explicit Simulator(Network network);
  Simulator(Simulator&&) noexcept;
  Simulator& operator=(Simulator&&) noexcept;
  ~Simulator();

  const Network& network() const;
  /// Errors    kInvalidArgument naming the argument, also for a schedule that never ends, which
  ///           verify() would have found. kUnsupported: kRounds with several calls, or with a
  ///           schedule in which ranks go on while one of their messages waits for a rank in
  ///           another round.
  Result<Simulation> run(std::span<const SimulatedCall> calls, const SimulationOptions& options);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace farandole
