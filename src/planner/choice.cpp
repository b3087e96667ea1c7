// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/choice.hpp"

#include <algorithm>
#include <cmath>

#include "algorithms/registry.hpp"
#include "delegates/delegate.hpp"

namespace farandole {
namespace {

bool asks(std::string_view preference) {
  return !preference.empty() && preference != "auto";
}

/// For calls with counts: the algorithm of least latency or fewest bytes among those that take
/// them.
std::string_view choose_with_counts(Collective collective, bool peer_memory) {
  switch (collective) {
    case Collective::kAlltoall:
      return "pairwise";
    case Collective::kGather:
    case Collective::kScatter:
      return "direct";
    default:
      return peer_memory ? "direct" : "ring";
  }
}

std::uint64_t planned_bytes(const CallShape& call) {
  const double bytes = static_cast<double>(larger_side(call).value());
  return static_cast<std::uint64_t>(std::min(std::ldexp(bytes, call.size_shift), 0x1p62));
}

}  // namespace

bool may_run_by(const CallShape& call, std::string_view spec) {
  const Delegate* delegate = find_delegate(call.collective, spec);
  if (delegate == nullptr) return true;
  if (call.kind != PlanTable::Kind::kAny || call.by_rank || call.deterministic) return false;
  return delegate->supports({call.collective, call.dtype, call.reduction, call.device});
}

Bytes larger_side(const CallShape& call) {
  // Not the sizes of this rank's own buffers, one of which may be empty on a rank that is not the
  // root.
  const bool many = call.collective != Collective::kAllreduce &&
                    call.collective != Collective::kReduce &&
                    call.collective != Collective::kBroadcast;
  const auto chunks = static_cast<std::size_t>(many ? call.rank_count : 1);
  return Count{call.count.value() * chunks} * size_of(call.dtype);
}

std::optional<Choice> choose_by_preference(const CallShape& call, const Preferences& preferences) {
  if (asks(preferences.call)) return Choice{std::string(preferences.call), Reason::kCall};
  if (call.by_rank) {
    const std::string_view spec = choose_with_counts(call.collective, call.peer_memory);
    return Choice{std::string(spec), Reason::kCounts};
  }
  if (asks(preferences.schedule))
    return Choice{std::string(preferences.schedule), Reason::kSchedule};
  const auto base = std::string(preferences.setting.substr(0, preferences.setting.find(':')));
  if (asks(preferences.setting) && find_algorithm(call.collective, base) &&
      may_run_by(call, preferences.setting)) {
    return Choice{std::string(preferences.setting), Reason::kSetting};
  }
  return std::nullopt;
}

Choice choose_by_table(const CallShape& call, PlanTable& table) {
  const std::uint64_t bytes = planned_bytes(call);
  PlanTable::Kind kind = call.kind;
  if (!may_run_by(call, table.find(call.collective, bytes, kind))) {
    kind = PlanTable::Kind::kSchedule;
  }
  const Reason reason = table.tuned(call.collective, bytes, kind) ? Reason::kTable : Reason::kCost;
  return {table.find(call.collective, bytes, kind), reason};
}

}  // namespace farandole
