// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/plan.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/registered.hpp"
#include "algorithms/registry.hpp"
#include "base/fingerprint.hpp"
#include "bootstrap/roster.hpp"
#include "frontend/choices.hpp"
#include "frontend/delegates.hpp"
#include "planner/choice.hpp"
#include "planner/fit.hpp"
#include "schedule/passes/synchronize.hpp"
#include "schedule/text.hpp"

namespace farandole {
namespace {

/// The schedule of FARANDOLE_SCHEDULE that suits the call; null if there is none.
const Schedule* written_for(const Call& call, const CommunicatorState& state) {
  if (call.options.deterministic) return nullptr;
  const Arguments& arguments = call.arguments;
  const auto& schedules = state.context->environment.schedules;
  const auto found = std::ranges::find_if(schedules, [&](const VerifiedSchedule& one) {
    const Schedule& schedule = one.schedule();
    return schedule.collective == arguments.collective &&
           schedule.rank_count == state.group->size() &&
           (!has_root(arguments.collective) || root_rank(schedule) == arguments.root.value());
  });
  return found == schedules.end() ? nullptr : &found->schedule();
}

CallShape shape_of(const Call& call, const CommunicatorState& state, std::string_view device,
                   PlanTable::Kind kind) {
  const Arguments& arguments = call.arguments;
  return {.collective = arguments.collective,
          .count = arguments.count,
          .dtype = arguments.dtype,
          .reduction = arguments.reduction,
          .rank_count = state.group->size(),
          .by_rank = arguments.by_rank,
          .deterministic = call.options.deterministic,
          .device = device,
          .peer_memory = state.peer_memory,
          .size_shift = call.options.size_shift,
          .kind = kind};
}

Choice choose(const Call& call, const CallShape& shape, CommunicatorState& state) {
  Preferences preferences{.call = call.options.algorithm};
  if (const Schedule* written = written_for(call, state)) preferences.schedule = written->algorithm;
  if (!state.unfit.contains(shape.collective)) {
    preferences.setting = state.context->environment.algorithm;
  }
  if (auto preferred = choose_by_preference(shape, preferences)) return *std::move(preferred);
  return choose_by_table(shape, choices_of(state));
}

/// Ranks whose schedules differ in anything, options included, must not mix their messages.
std::uint16_t fingerprint(const Schedule& schedule) {
  Fingerprint text;
  text.add(to_text(schedule));
  return text.short_value();
}

bool touches_out(const Program& program) {
  return std::ranges::any_of(program.actions, [](const Action& action) {
    return std::ranges::any_of(
        std::array{&action.source, &action.target, &action.operand},
        [](const auto* span) { return *span && (*span)->buffer == Buffer::kOut; });
  });
}

Result<Schedule> build(const Call& call, const std::string& algorithm, const Group& group) {
  const Collective collective = call.arguments.collective;
  const std::int64_t root = has_root(collective) ? call.arguments.root.value() : 0;
  return build_schedule(collective, algorithm, group.size(), root, call.options.deterministic);
}

/// Whether a rank could finish before all have called, or before all have their results. With a
/// root, data flows one way. In an alltoall with counts, only the lengths of messages show whether
/// two ranks agree, and only one of the two sees them.
bool needs_end_together(const Arguments& arguments) {
  return has_root(arguments.collective) ||
         (arguments.collective == Collective::kAlltoall && arguments.by_rank);
}

/// Whether the plan takes counts per rank; computed when first needed.
bool runs_counts(const Call& call, const std::string& algorithm, Plan& plan,
                 const CommunicatorState& state) {
  if (!plan.takes_counts) {
    const auto schedule = build(call, algorithm, *state.group);
    plan.takes_counts = schedule && takes_counts(*schedule);
  }
  return *plan.takes_counts;
}

/// A peer that cannot be reached, or has given up, may be the first sign of a death in the group
/// whose membership event is still on its way.
Error blame(const Group& group, Membership& membership, Error error) {
  if (error.kind == ErrorKind::kInvalidArgument) return error;
  const auto death = membership.relay.death([&](Rank rank) { return group.contains(rank); },
                                            Deadline::after(kEventTime));
  if (!death || death->rank == membership.self) return error;
  const Member& member = membership.members[static_cast<std::size_t>(death->rank.value())];
  return Error{ErrorKind::kRankFailed,
               describe(member) + " " + death->reason + " while the ranks connected.",
               ProcessName{death->rank.value(), member.host, member.pid}};
}

Result<std::shared_ptr<Plan>> make_plan(const Call& call, const std::string& algorithm,
                                        CommunicatorState& state) {
  const Collective collective = call.arguments.collective;
  const Group& group = *state.group;
  const std::string base = algorithm.substr(0, algorithm.find(':'));
  auto info = find_algorithm(collective, base);
  if (!info) return info.error();
  if ((*info)->delegate != nullptr) return make_delegate_plan(**info, state);
  auto schedule = build(call, algorithm, group);
  if (!schedule) return schedule.error();
  if (needs_end_together(call.arguments)) schedule = synchronized(*std::move(schedule));
  auto plan = std::make_shared<Plan>();
  plan->fingerprint = fingerprint(*schedule);
  auto verified = verify(*std::move(schedule));
  if (!verified) return verified.error();
  auto program = std::make_shared<const Program>(specialize(*verified, group.self.value()));
  plan->touches_out = touches_out(*program);
  plan->algorithm = index_of(**info);
  const auto start_timeout = state.context->environment.job.start_timeout;
  if (auto met = connect(group, state.context->membership, start_timeout, program->peers); !met)
    return met.error();
  plan->label = std::string(name(collective)) + " " + algorithm;
  std::set<std::string_view> used;
  for (const std::int64_t peer : program->peers) {
    used.insert(group.transports[static_cast<std::size_t>(peer)]->capabilities().name);
  }
  for (const std::string_view transport : used) plan->label += " " + std::string(transport);
  plan->executable = std::move(program);
  return plan;
}

}  // namespace

Result<void> connect(const Group& group, Membership& membership, std::chrono::milliseconds patience,
                     std::span<const std::int64_t> peers) {
  std::map<Transport*, std::vector<Rank>> ranks;
  for (const std::int64_t peer : peers) {
    const auto index = static_cast<std::size_t>(peer);
    ranks[group.transports[index]].push_back(group.world_ranks[index]);
  }
  const Deadline deadline = Deadline::after(patience);
  for (auto& [transport, through] : ranks) {
    if (auto connected = transport->connect(through, deadline); !connected) {
      return blame(group, membership, connected.error());
    }
  }
  return {};
}

Result<std::shared_ptr<Plan>> find_plan(const Call& call, CommunicatorState& state,
                                        std::string_view device, PlanTable::Kind kind) {
  const Arguments& arguments = call.arguments;
  const Collective collective = arguments.collective;
  const std::int64_t root = has_root(collective) ? arguments.root.value() : 0;
  const CallShape shape = shape_of(call, state, device, kind);
  const std::lock_guard lock(state.plans_mutex);
  for (;;) {
    const auto [algorithm, reason] = choose(call, shape, state);
    if (!may_run_by(shape, algorithm)) return unsuited_error(call, device, algorithm);
    const PlanKey key{collective, algorithm, root, call.options.deterministic,
                      needs_end_together(arguments)};
    auto found = state.plans.find(key);
    if (found == state.plans.end()) {
      auto made = make_plan(call, algorithm, state);
      if (!made && made.error().kind == ErrorKind::kInvalidArgument && reason == Reason::kSetting) {
        state.unfit.insert(collective);
        continue;
      }
      if (!made) return made.error();
      found = state.plans.emplace(key, *std::move(made)).first;
    }
    if (!arguments.by_rank || runs_counts(call, algorithm, *found->second, state)) {
      return found->second;
    }
    return bad_argument(
        name(collective), "algorithm", algorithm,
        "with counts per rank one of " + algorithms_with_counts(collective, state.group->size()));
  }
}

}  // namespace farandole
