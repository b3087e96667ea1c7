// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/delegates.hpp"

#include <utility>

#include "algorithms/registered.hpp"
#include "base/fingerprint.hpp"
#include "engine/delegate.hpp"
#include "frontend/signature.hpp"

namespace farandole {
namespace {

DelegateMembers delegate_members(const CommunicatorState& state) {
  const ContextState& context = *state.context;
  DelegateMembers result;
  result.job = context.environment.job.id;
  result.communicator = state.group->communicator;
  result.self = state.group->self;
  for (const Rank world_rank : state.group->world_ranks) {
    const Member& member = context.membership.members[static_cast<std::size_t>(world_rank.value())];
    result.members.push_back({world_rank, member.host_id, member.pid});
  }
  result.wake = [doorbell = context.fabric.doorbell.get()] { doorbell->ring(); };
  return result;
}

/// Fingerprint of a delegate's name. Comparing versions is the delegate's task.
std::uint16_t name_fingerprint(std::string_view name) {
  Fingerprint text;
  text.add(name);
  return text.short_value();
}

}  // namespace

std::vector<const AlgorithmInfo*> reachable_delegates(const CommunicatorState& state) {
  std::vector<const AlgorithmInfo*> rows;
  for (const AlgorithmInfo* row : registered_algorithms()) {
    if (row->delegate == nullptr) continue;
    if (row->delegate->reaches(delegate_members(state))) rows.push_back(row);
  }
  return rows;
}

Error unsuited_error(const Call& call, std::string_view device, const std::string& delegate) {
  const Arguments& arguments = call.arguments;
  std::string what(name(arguments.dtype));
  if (reduces(arguments.collective)) what += " " + std::string(name(arguments.reduction));
  if (arguments.by_rank) what += " with counts per rank";
  if (call.options.deterministic) what += " in the fixed order";
  what += " in memory of device '" + std::string(device) + "'";
  return bad_argument(name(arguments.collective), "algorithm", delegate, "one that takes " + what);
}

Result<std::shared_ptr<Plan>> make_delegate_plan(const AlgorithmInfo& row,
                                                 CommunicatorState& state) {
  const std::string collective(name(row.collective));
  const DelegateMembers members = delegate_members(state);
  if (!row.delegate->reaches(members)) {
    return bad_argument(collective, "algorithm", std::string(row.name),
                        "one that reaches all ranks of this communicator");
  }
  auto& joined = state.delegates[row.delegate];
  if (!joined) {
    auto made = row.delegate->join(members);
    if (!made) return made.error();
    joined = *std::move(made);
  }
  auto plan = std::make_shared<Plan>();
  plan->executable = joined;
  plan->algorithm = index_of(row);
  plan->fingerprint = name_fingerprint(row.name);
  plan->takes_counts = false;
  plan->delegate_name = row.name;
  plan->label = collective + " " + std::string(row.name);
  return plan;
}

std::shared_ptr<Operation> make_delegate_operation(const Call& call, const Plan& plan,
                                                   const CommunicatorState& state) {
  const Arguments& arguments = call.arguments;
  DelegateSpec spec;
  spec.terms = terms_of(state, call.options.name, call.options.gate);
  spec.delegate = std::get<std::shared_ptr<DelegateGroup>>(plan.executable);
  spec.algorithm = plan.delegate_name;
  spec.call = {.collective = arguments.collective,
               .in = arguments.in,
               .out = arguments.out,
               .count = arguments.count,
               .dtype = arguments.dtype,
               .reduction = arguments.reduction,
               .root = arguments.root};
  spec.signature = signature_of(call, plan);
  return std::make_shared<DelegateOperation>(std::move(spec));
}

}  // namespace farandole
