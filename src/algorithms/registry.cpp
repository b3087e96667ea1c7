// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/registry.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

#include "algorithms/deterministic.hpp"
#include "algorithms/registered.hpp"
#include "algorithms/spec.hpp"
#include "algorithms/table.hpp"

namespace farandole {
namespace {

constexpr std::array kAlgorithms = {
    &kAllreduceRing,
    &kAllreduceRingBidirectional,
    &kAllreduceRecursiveDoubling,
    &kAllreduceRabenseifner,
    &kAllreduceReduceBroadcast,
    &kAllreduceDoubleBinaryTree,
    &kAllreduceTwoLevel,
    &kAllreduceHierarchical,
    &kAllreduceDirect,
    &kAllreduceOneShot,
    &kReduceDirect,
    &kReduceChain,
    &kReduceBinomial,
    &kReduceKnomial,
    &kReduceRabenseifner,
    &kReducePipelinedChain,
    &kReduceDoubleBinaryTree,
    &kBroadcastDirect,
    &kBroadcastChain,
    &kBroadcastBinomial,
    &kBroadcastKnomial,
    &kBroadcastScatterAllgather,
    &kBroadcastPipelinedChain,
    &kBroadcastDoubleBinaryTree,
    &kReducescatterRing,
    &kReducescatterHalving,
    &kReducescatterPairwise,
    &kReducescatterHierarchical,
    &kReducescatterDirect,
    &kAllgatherRing,
    &kAllgatherBruck,
    &kAllgatherHierarchical,
    &kAllgatherDirect,
    &kGatherDirect,
    &kGatherBinomial,
    &kScatterDirect,
    &kScatterBinomial,
    &kAlltoallPairwise,
    &kAlltoallBruck,
    &kAlltoallDirect,
    &kBarrierDissemination,
};
static_assert(kAlgorithms.size() < kRegistered);

}  // namespace

std::span<const AlgorithmInfo* const> algorithms() {
  return kAlgorithms;
}

std::vector<const AlgorithmInfo*> all_algorithms() {
  std::vector<const AlgorithmInfo*> rows(kAlgorithms.begin(), kAlgorithms.end());
  std::ranges::copy(registered_algorithms(), std::back_inserter(rows));
  return rows;
}

std::uint8_t index_of(const AlgorithmInfo& info) {
  const auto found = std::ranges::find(kAlgorithms, &info);
  if (found == kAlgorithms.end()) return kRegistered;
  return static_cast<std::uint8_t>(found - kAlgorithms.begin());
}

Result<Schedule> build_schedule(Collective collective, std::string_view spec,
                                std::int64_t rank_count, std::int64_t root, bool deterministic) {
  const auto parsed = parse_spec(collective, spec, rank_count, root);
  if (!parsed) return parsed.error();
  const AlgorithmSpec& chosen = *parsed;
  if (chosen.info->delegate != nullptr) {
    return Error{ErrorKind::kInvalidArgument, "algorithm \"" + std::string(chosen.info->name) +
                                                  "\" for " + std::string(name(collective)) +
                                                  " is a delegate, which has no schedule."};
  }
  if (chosen.info->build == nullptr) {
    if (!deterministic) return written_schedule(*chosen.info, rank_count, root);
    return Error{ErrorKind::kInvalidArgument,
                 "schedule \"" + std::string(chosen.info->name) + "\" for " +
                     std::string(name(collective)) +
                     ": argument 'deterministic' is true, allowed is false."};
  }
  if (deterministic && reduces(collective)) {
    if (collective == Collective::kReducescatter && rank_count > kExchangeRanksMax) {
      return Error{ErrorKind::kUnsupported, "reducescatter over " + std::to_string(rank_count) +
                                                " ranks: argument 'deterministic' is true, which "
                                                "is there for at most " +
                                                std::to_string(kExchangeRanksMax) + " ranks."};
    }
    return build_deterministic(*chosen.info, rank_count, root);
  }
  return chosen.info->build(chosen.parameters);
}

const Delegate* find_delegate(Collective collective, std::string_view spec) {
  const auto found = find_registered(collective, spec.substr(0, spec.find(':')));
  return found == nullptr ? nullptr : found->delegate;
}

Result<const AlgorithmInfo*> find_algorithm(Collective collective, std::string_view name) {
  std::string known;
  for (const AlgorithmInfo* info : kAlgorithms) {
    if (info->collective != collective) continue;
    if (info->name == name) return info;
    known += (known.empty() ? "" : ", ") + std::string(info->name);
  }
  if (const AlgorithmInfo* added = find_registered(collective, name)) return added;
  return Error{ErrorKind::kInvalidArgument, "no algorithm \"" + std::string(name) + "\" for " +
                                                std::string(farandole::name(collective)) +
                                                "; there is " + known};
}

}  // namespace farandole
