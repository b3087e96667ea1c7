// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>

#include "simulator/events.hpp"
#include "simulator/patterns.hpp"
#include "simulator/rounds.hpp"

namespace farandole {
namespace {

// Above this, an estimate is better than a long wait.
constexpr std::int64_t kAutoMessagesMax = 1'000'000;

Error invalid(const std::string& what) {
  return {ErrorKind::kInvalidArgument, what};
}

bool is_time(double seconds) {
  return std::isfinite(seconds) && seconds >= 0;
}

std::int64_t ranks_of(const SimulatedCall& call) {
  return call.by_delegate ? call.by_delegate->rank_count : call.schedule->rank_count;
}

Result<void> check(const SimulatedCall& call, const Network& network) {
  if (call.schedule == nullptr && !call.by_delegate) {
    return invalid("argument 'schedule' is missing.");
  }
  const auto p = static_cast<std::size_t>(ranks_of(call));
  const auto places = static_cast<std::size_t>(network.rank_count());
  if (!is_time(call.bytes)) {
    return invalid("argument 'bytes' is " + std::to_string(call.bytes) +
                   ", allowed is a finite number from 0 on.");
  }
  if (call.ranks.empty() ? p > places : call.ranks.size() != p) {
    return invalid("argument 'ranks' names " +
                   std::to_string(call.ranks.empty() ? places : call.ranks.size()) +
                   " ranks, the schedule has " + std::to_string(p) + ".");
  }
  std::vector<std::int32_t> sorted = call.ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (!sorted.empty() && (twice || sorted.front() < 0 || sorted.back() >= network.rank_count())) {
    return invalid("argument 'ranks' must name each rank once, from 0 to " +
                   std::to_string(places - 1) + ".");
  }
  const auto& starts = call.start_seconds;
  if (!starts.empty() &&
      (starts.size() != p || !std::all_of(starts.begin(), starts.end(), is_time))) {
    return invalid("argument 'start_seconds' holds " + std::to_string(starts.size()) +
                   " times, allowed are " + std::to_string(p) + " finite ones from 0 on.");
  }
  return {};
}

Result<void> check(const SimulationOptions& options, const Network& network) {
  const auto& slow = options.slow_down;
  const auto p = static_cast<std::size_t>(network.rank_count());
  if (slow.empty() || (slow.size() == p && std::all_of(slow.begin(), slow.end(), is_time))) {
    return {};
  }
  return invalid("argument 'slow_down' holds " + std::to_string(slow.size()) +
                 " factors, allowed are " + std::to_string(p) + " finite ones from 0 on.");
}

std::vector<Simulation::LinkUse> busiest(const Network& network, const PathResult& result,
                                         std::size_t count) {
  std::vector<std::int32_t> links(result.link_bytes.size());
  std::iota(links.begin(), links.end(), 0);
  const auto share = [&](std::int32_t link) {
    const auto l = static_cast<std::size_t>(link);
    const double room = network.capacities()[l] * result.seconds;
    return room > 0 ? result.link_bytes[l] / room : 0.0;
  };
  const auto end = links.begin() + std::min(std::ssize(links), static_cast<std::ptrdiff_t>(count));
  std::partial_sort(links.begin(), end, links.end(), [&](std::int32_t a, std::int32_t b) {
    return share(a) != share(b) ? share(a) > share(b) : a < b;
  });
  std::vector<Simulation::LinkUse> uses;
  for (auto link = links.begin(); link != end && share(*link) > 0; ++link) {
    uses.push_back({network.link_name(*link), result.link_bytes[static_cast<std::size_t>(*link)],
                    share(*link)});
  }
  return uses;
}

/// The largest number of ranks of the call on one host.
std::int64_t most_per_host(const SimulatedCall& call, const Network& network) {
  std::map<std::int32_t, std::int64_t> ranks;
  std::int64_t most = 0;
  for (std::int64_t rank = 0; rank < ranks_of(call); ++rank) {
    const auto placed = call.ranks.empty() ? static_cast<std::int32_t>(rank)
                                           : call.ranks[static_cast<std::size_t>(rank)];
    most = std::max(most, ++ranks[network.host(placed)]);
  }
  return most;
}

/// When the ranks of a delegate's call end, and how long it took.
struct DelegateTimes {
  double finish = 0, seconds = 0;
};
DelegateTimes times_of(const SimulatedCall& call, const Network& network,
                       const SimulationOptions& options) {
  const auto& [delegate, collective, rank_count] = *call.by_delegate;
  double slowest = options.slow_down.empty() ? 1.0 : 0.0;
  for (std::int64_t rank = 0; rank < rank_count && !options.slow_down.empty(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const auto placed = call.ranks.empty() ? at : static_cast<std::size_t>(call.ranks[at]);
    slowest = std::max(slowest, options.slow_down[placed]);
  }
  const auto& starts = call.start_seconds;
  const double begin = starts.empty() ? 0.0 : *std::ranges::max_element(starts);
  DelegatePrice price = delegate->price(collective, rank_count, most_per_host(call, network));
  price.seconds *= slowest;
  const double seconds = rank_count == 1 ? 0.0 : price.of(call.bytes);
  return {begin + seconds, seconds};
}

std::string stage_name(const SimulatedCall& call, std::size_t stage) {
  if (call.by_delegate) return std::string(call.by_delegate->delegate->name());
  const Schedule& schedule = *call.schedule;
  return schedule.stages.empty() ? schedule.algorithm : schedule.stages[stage].name;
}

}  // namespace

struct Simulator::State {
  explicit State(Network given) : network(std::move(given)), patterns(network) {}

  Result<PathResult> run_all(std::span<const SimulatedCall> calls, const SimulationOptions& options,
                             SimulationPath& taken);
  Result<PathResult> run(std::span<const SimulatedCall> calls, const SimulationOptions& options,
                         SimulationPath& taken);

  Network network;
  PatternTable patterns;
  std::mutex running;
};

Result<PathResult> Simulator::State::run(std::span<const SimulatedCall> calls,
                                         const SimulationOptions& options, SimulationPath& taken) {
  if (options.path != SimulationPath::kEvents) {
    taken = SimulationPath::kRounds;
    Result<PathResult> result = calls.size() == 1
                                    ? simulate_rounds(network, patterns, calls[0], options)
                                    : Error{ErrorKind::kUnsupported,
                                            "argument 'path' is \"rounds\", which times one call; "
                                            "for several there is \"events\"."};
    const bool stands = result ? result->exact || result->messages > kAutoMessagesMax
                               : result.error().kind != ErrorKind::kUnsupported;
    if (stands || options.path == SimulationPath::kRounds) return result;
  }
  taken = SimulationPath::kEvents;
  return simulate_events(network, calls, options);
}

/// Schedules share the links; calls of delegates are timed apart and added to the result.
Result<PathResult> Simulator::State::run_all(std::span<const SimulatedCall> calls,
                                             const SimulationOptions& options,
                                             SimulationPath& taken) {
  std::vector<SimulatedCall> scheduled;
  for (const SimulatedCall& call : calls) {
    if (!call.by_delegate) scheduled.push_back(call);
  }
  if (scheduled.size() == calls.size()) return run(calls, options, taken);
  PathResult result;
  result.link_bytes.resize(network.capacities().size());
  if (!scheduled.empty()) {
    auto found = run(scheduled, options, taken);
    if (!found) return found;
    result = *std::move(found);
  }
  for (std::size_t c = 0; c < calls.size(); ++c) {
    if (!calls[c].by_delegate) continue;
    const DelegateTimes times = times_of(calls[c], network, options);
    const auto at = static_cast<std::ptrdiff_t>(c);
    const auto p = static_cast<std::size_t>(ranks_of(calls[c]));
    result.finish_seconds.insert(result.finish_seconds.begin() + at,
                                 std::vector<double>(p, times.finish));
    result.stage_seconds.insert(result.stage_seconds.begin() + at, {times.seconds});
    result.seconds = std::max(result.seconds, times.finish);
  }
  return result;
}

Simulator::Simulator(Network network) : state_(std::make_unique<State>(std::move(network))) {}
Simulator::Simulator(Simulator&&) noexcept = default;
Simulator& Simulator::operator=(Simulator&&) noexcept = default;
Simulator::~Simulator() = default;

const Network& Simulator::network() const {
  return state_->network;
}

Result<Simulation> Simulator::run(std::span<const SimulatedCall> calls,
                                  const SimulationOptions& options) {
  if (calls.empty()) return invalid("argument 'calls' is empty, allowed is 1 call or more.");
  for (const SimulatedCall& call : calls) {
    if (auto checked = check(call, network()); !checked) return std::move(checked).error();
  }
  if (auto checked = check(options, network()); !checked) return std::move(checked).error();
  const std::lock_guard lock(state_->running);
  Simulation simulation;
  auto result = state_->run_all(calls, options, simulation.path);
  if (!result) return std::move(result).error();
  simulation.seconds = result->seconds;
  simulation.exact = result->exact;
  simulation.messages = result->messages;
  simulation.bytes = result->bytes;
  for (std::size_t c = 0; c < calls.size(); ++c) {
    for (std::size_t s = 0; s < result->stage_seconds[c].size(); ++s) {
      simulation.stages.push_back({c, stage_name(calls[c], s), result->stage_seconds[c][s]});
    }
  }
  simulation.busiest = busiest(network(), *result, options.busiest_links);
  simulation.finish_seconds = std::move(result->finish_seconds);
  return simulation;
}

}  // namespace farandole
