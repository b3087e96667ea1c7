// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/registry.hpp"

#include <array>
#include <string>

#include "algorithms/table.hpp"

namespace farandole {
namespace {

constexpr std::array kAlgorithms = {
    &kAllreduceRing,
    &kAllreduceRingBidirectional,
    &kAllreduceRecursiveDoubling,
    &kAllreduceRabenseifner,
    &kAllreduceDirect,
    &kReducescatterRing,
    &kReducescatterDirect,
    &kAllgatherRing,
    &kAllgatherDirect,
    &kBroadcastBinomial,
    &kBarrierDissemination,
};

}  // namespace

std::span<const AlgorithmInfo* const> algorithms() {
  return kAlgorithms;
}

Result<Schedule> build_schedule(Collective collective, std::string_view spec,
                                std::int64_t rank_count, std::int64_t root,
                                bool /*deterministic*/) {
  auto info = find_algorithm(collective, spec);
  if (!info) return info.error();
  return (*info)->build({.rank_count = rank_count, .root = root});
}

Result<const AlgorithmInfo*> find_algorithm(Collective collective, std::string_view name) {
  std::string known;
  for (const AlgorithmInfo* info : kAlgorithms) {
    if (info->collective != collective) continue;
    if (info->name == name) return info;
    known += (known.empty() ? "" : ", ") + std::string(info->name);
  }
  return Error{ErrorKind::kInvalidArgument, "no algorithm \"" + std::string(name) + "\" for " +
                                                std::string(farandole::name(collective)) +
                                                "; there is " + known};
}

}  // namespace farandole
