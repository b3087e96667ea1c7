// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulation/scenario.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "simulation/programs.hpp"
#include "simulation/random.hpp"

namespace farandole::simulation {
namespace {

using namespace std::chrono_literals;

int draw_size(Random& random) {
  const int way = random.below(100);
  if (way < 60) return random.between(2, 5);
  if (way < 92) return random.between(6, 12);
  if (way < 99) return random.between(13, 33);
  return random.between(34, 64);
}

std::vector<int> some_ranks(Random& random, int of, int count) {
  std::vector<int> ranks(static_cast<std::size_t>(of));
  for (int i = 0; i < of; ++i) ranks[static_cast<std::size_t>(i)] = i;
  for (int i = 0; i < count; ++i) {
    std::swap(ranks[static_cast<std::size_t>(i)],
              ranks[static_cast<std::size_t>(random.between(i, of - 1))]);
  }
  ranks.resize(static_cast<std::size_t>(count));
  return ranks;
}

/// The world; then perhaps groups that share no rank and have one number, as a split makes them,
/// and one that overlaps them.
std::vector<GroupPlan> draw_groups(Random& random, int size) {
  std::vector<GroupPlan> groups(1);
  for (int rank = 0; rank < size; ++rank) groups[0].ranks.push_back(rank);
  if (size < 3 || random.chance(40)) return groups;
  const auto mixed = some_ranks(random, size, size);
  const int cut = random.between(1, size - 1);
  groups.push_back({1, {mixed.begin(), mixed.begin() + cut}});
  groups.push_back({1, {mixed.begin() + cut, mixed.end()}});
  if (random.chance(50)) groups.push_back({2, some_ranks(random, size, random.between(2, size))});
  return groups;
}

CallPlan draw_call(Random& random, int size) {
  CallPlan call;
  call.collective = static_cast<Collective>(random.below(kCollectiveCount));
  call.algorithm = random.pick(algorithms_for(call.collective, size));
  call.root = has_root(call.collective) ? (random.chance(50) ? 0 : size - 1) : 0;
  const int way = random.below(100);
  const int most = way < 10 ? 1 : way < 50 ? 16 : way < 95 ? 150 : 2000;
  call.count = static_cast<std::size_t>(random.between(0, std::max(1, 2 * most / size)));
  if (call.collective == Collective::kBarrier) call.count = 0;
  call.dtype = random.chance(50) ? DType::kInt32 : DType::kFloat32;
  call.reduction = random.chance(70) ? Reduction::kSum : Reduction::kMax;
  call.in_place = random.chance(30);
  return call;
}

/// Another call than that, in something that ranks must agree on.
CallPlan differing_call(Random& random, const CallPlan& call, int size) {
  CallPlan other = call;
  switch (random.below(4)) {
    case 0:
      other.count += static_cast<std::size_t>(random.between(1, 9));
      if (call.collective != Collective::kBarrier) return other;
      break;
    case 1:
      other.dtype = call.dtype == DType::kInt32 ? DType::kFloat32 : DType::kInt32;
      return other;
    case 2:
      other.root = size - 1 - call.root;
      if (has_root(call.collective) && other.root != call.root) return other;
      break;
    default:
      break;
  }
  do {
    other = draw_call(random, size);
  } while (other.collective == call.collective);
  return other;
}

void draw_operations(Random& random, Scenario& scenario) {
  const int count = random.between(2, scenario.rank_count > 16 ? 6 : 12);
  const Clock::duration think = random.chance(50) ? 0ns : random.chance(50) ? 2ms : 200ms;
  std::map<std::size_t, std::size_t> last;  // by group
  std::map<std::size_t, std::uint32_t> next;
  for (int i = 0; i < count; ++i) {
    OperationPlan plan;
    plan.group = static_cast<std::size_t>(random.below(static_cast<int>(scenario.groups.size())));
    const GroupPlan& group = scenario.groups[plan.group];
    plan.sequence = next[plan.group]++;
    const auto before = last.find(plan.group);
    plan.repeats = before != last.end() && random.chance(40);
    plan.call = plan.repeats ? scenario.operations[before->second].call
                             : draw_call(random, static_cast<int>(group.ranks.size()));
    for (int rank = 0; rank < scenario.rank_count; ++rank) plan.think.push_back(random.time(think));
    last[plan.group] = scenario.operations.size();
    scenario.operations.push_back(std::move(plan));
  }
}

/// An operation in which several ranks take part; none if there is none.
OperationPlan* some_operation(Random& random, Scenario& scenario) {
  std::vector<OperationPlan*> shared;
  for (OperationPlan& plan : scenario.operations) {
    if (scenario.groups[plan.group].ranks.size() > 1) shared.push_back(&plan);
  }
  return shared.empty() ? nullptr : random.pick(shared);
}

void draw_mismatch(Random& random, Scenario& scenario) {
  OperationPlan* plan = some_operation(random, scenario);
  if (plan == nullptr) return scenario.fault = Fault::kNone, void();
  const GroupPlan& group = scenario.groups[plan->group];
  const int size = static_cast<int>(group.ranks.size());
  plan->otherwise = differing_call(random, plan->call, size);
  const int count = random.chance(70) ? 1 : random.between(1, size - 1);
  for (const int at : some_ranks(random, size, count)) {
    plan->differing.push_back(group.ranks[static_cast<std::size_t>(at)]);
  }
}

void draw_freed(Random& random, Scenario& scenario) {
  std::vector<std::size_t> candidates;
  for (std::size_t i = 1; i < scenario.groups.size(); ++i) {
    if (scenario.groups[i].ranks.size() > 1) candidates.push_back(i);
  }
  if (candidates.empty()) return scenario.fault = Fault::kNone, void();
  scenario.freed_group = random.pick(candidates);
  scenario.victims = {random.pick(scenario.groups[*scenario.freed_group].ranks)};
}

/// Repeats the last call until three time-outs have passed, so that one counts from the call.
void draw_long_run(Random& random, Scenario& scenario) {
  if (scenario.fault != Fault::kNone || !random.chance(20)) return;
  scenario.timeout = 2s;
  scenario.late_every = 0;
  scenario.delay_max = std::min<Clock::duration>(scenario.delay_max, 100us);
  for (OperationPlan& plan : scenario.operations) {
    for (Clock::duration& think : plan.think) think = std::min<Clock::duration>(think, 2ms);
  }
  const OperationPlan model = scenario.operations.back();
  for (std::uint32_t i = 1; i <= 6; ++i) {
    OperationPlan plan = model;
    plan.sequence += i;
    plan.repeats = true;
    for (Clock::duration& think : plan.think) think = 1s + random.time(50ms);
    scenario.operations.push_back(std::move(plan));
  }
}

void draw_fault(Random& random, Scenario& scenario) {
  const int size = scenario.rank_count;
  scenario.fault_at = random.time(random.chance(50) ? 3ms : 400ms);
  scenario.victims = some_ranks(random, size, 1);
  switch (scenario.fault) {
    case Fault::kMixed:
      if (size > 2 && random.chance(50)) draw_mismatch(random, scenario);
      scenario.fault = Fault::kMixed;
      scenario.outage = some_ranks(random, size, 2);
      scenario.fault_time = random.time(1s);
      [[fallthrough]];
    case Fault::kDeath:
      scenario.victims = some_ranks(random, size, random.between(1, std::min(3, size - 1)));
      break;
    case Fault::kPause:
      scenario.fault_time = random.time(scenario.control_timeout / 2);
      break;
    case Fault::kSilence:
      scenario.fault_time = random.chance(50) ? 2 * scenario.control_timeout : 100 * 60s;
      break;
    case Fault::kLate: {
      scenario.timeout = 500ms;
      OperationPlan* plan = some_operation(random, scenario);
      if (plan == nullptr) return scenario.fault = Fault::kNone, void();
      for (Clock::duration& think : plan->think) think = random.time(2ms);
      scenario.victims = {random.pick(scenario.groups[plan->group].ranks)};
      plan->think[static_cast<std::size_t>(scenario.victims[0])] = 2s + random.time(2s);
      break;
    }
    case Fault::kMismatch:
      return draw_mismatch(random, scenario);
    case Fault::kExcuse: {
      OperationPlan* plan = some_operation(random, scenario);
      if (plan == nullptr) return scenario.fault = Fault::kNone, void();
      plan->excused = random.pick(scenario.groups[plan->group].ranks);
      break;
    }
    case Fault::kFreed:
      return draw_freed(random, scenario);
    case Fault::kOutage:
      scenario.fault_time = random.time(3s);
      break;
    case Fault::kBroken:
      if (!scenario.quits) scenario.timeout = 5s;
      [[fallthrough]];
    case Fault::kStall:
      scenario.victims = some_ranks(random, size, 2);
      break;
    case Fault::kNone:
      break;
  }
}

}  // namespace

std::string name(Fault fault) {
  static constexpr std::array kNames = {"none",   "death",    "pause",  "silence",
                                        "late",   "mismatch", "excuse", "freed",
                                        "outage", "stall",    "broken", "mixed"};
  static_assert(kNames.size() == kFaultCount);
  return kNames[static_cast<std::size_t>(fault)];
}

bool GroupPlan::contains(int rank) const {
  return std::ranges::find(ranks, rank) != ranks.end();
}

int GroupPlan::rank_of(int world_rank) const {
  const auto found = std::ranges::find(ranks, world_rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

Scenario draw_scenario(std::uint64_t seed, std::optional<int> rank_count,
                       std::optional<Fault> fault) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  const int size = draw_size(random);
  scenario.rank_count = rank_count.value_or(size);
  const auto kind = static_cast<Fault>(random.below(kFaultCount));
  scenario.fault = fault.value_or(kind);
  scenario.window = random.chance(50) ? 1 : random.between(2, 4);
  scenario.quits = random.chance(60);
  scenario.timeout = 60s;
  scenario.delay_max = random.chance(20) ? 0ns : random.chance(70) ? 100us : 20ms;
  scenario.late_max = 300ms;
  scenario.late_every = random.chance(30) ? 50 : 0;
  scenario.overtakes = random.chance(80);
  scenario.follows = random.chance(70);
  scenario.eager_bytes = std::size_t{16} << random.below(7);
  scenario.piece_bytes = std::size_t{16} << random.below(9);
  scenario.pieces_ahead = static_cast<std::uint32_t>(random.between(1, 6));
  scenario.late_cancels = static_cast<std::uint32_t>(random.below(3));
  scenario.control_delay = random.chance(50) ? 1ms : 50ms;
  scenario.detection = random.chance(50) ? 5ms : 100ms;
  scenario.control_timeout = 5s;
  scenario.groups = draw_groups(random, scenario.rank_count);
  draw_operations(random, scenario);
  draw_fault(random, scenario);
  draw_long_run(random, scenario);
  return scenario;
}

}  // namespace farandole::simulation
