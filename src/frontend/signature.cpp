// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/signature.hpp"

#include <numeric>
#include <string>

#include "algorithms/registry.hpp"
#include "base/fingerprint.hpp"

namespace farandole {
namespace {

// Value of a signature's `collective` for a message between two ranks.
constexpr std::uint8_t kMessage = 0xff;
// Set in a signature's `reduction` if chunks have different lengths.
constexpr std::uint8_t kByRank = 0x80;
// A signature's `count` holds the elements in its low bits, a fingerprint in the others.
constexpr int kCountBits = 48;
constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kCountBits) - 1;
static_assert(kCountMax <= kCountMask);
// Odd, so that any two purposes give two fingerprints.
constexpr unsigned kPurposes = 0x9e37;

std::uint16_t fingerprint(std::span<const std::size_t> counts) {
  Fingerprint list;
  for (const std::size_t count : counts) list.add(count);
  return list.short_value();
}

std::string elements(const Signature& signature) {
  const bool by_rank = (signature.reduction & kByRank) != 0;
  const std::uint64_t count = signature.count & kCountMask;
  std::string text = std::to_string(count);
  if (by_rank) text = count > 0 ? text + " over all ranks" : "counts per rank";
  return std::string(name(static_cast<DType>(signature.dtype))) + "[" + text + "]";
}

}  // namespace

Signature signature_of(const Call& whole, const Plan& plan) {
  const Arguments& call = whole.arguments;
  Signature signature;
  signature.collective = static_cast<std::uint8_t>(call.collective);
  signature.dtype = static_cast<std::uint8_t>(call.dtype);
  if (reduces(call.collective)) signature.reduction = static_cast<std::uint8_t>(call.reduction);
  signature.algorithm = plan.algorithm;
  if (has_root(call.collective)) signature.root = call.root.value();
  auto mark = static_cast<std::uint16_t>(plan.fingerprint ^ whole.options.purpose * kPurposes);
  signature.count = call.count.value();
  if (call.by_rank) {
    signature.reduction |= kByRank;
    // Only what all ranks know can be compared; the rest shows in the lengths of messages.
    std::span<const std::size_t> shared;
    if (call.collective == Collective::kAllgather) shared = call.out_counts;
    if (call.collective == Collective::kReducescatter) shared = call.in_counts;
    signature.count = std::accumulate(shared.begin(), shared.end(), std::uint64_t{0});
    mark ^= fingerprint(shared);
  }
  signature.count |= static_cast<std::uint64_t>(mark) << kCountBits;
  return signature;
}

Signature signature_of(const Message& message) {
  Signature signature;
  signature.collective = kMessage;
  signature.dtype = static_cast<std::uint8_t>(message.dtype);
  signature.count = message.count.value();
  return signature;
}

std::string describe(const Signature& signature) {
  if (signature.dtype >= kDTypeCount) return "something unknown";
  if (signature.collective == kMessage) return elements(signature);
  const auto collective = static_cast<Collective>(signature.collective);
  const int reduction = signature.reduction & ~kByRank;
  if (signature.collective >= kCollectiveCount || reduction >= kReductionCount ||
      (signature.algorithm >= algorithms().size() && signature.algorithm != kRegistered)) {
    return "something unknown";
  }
  std::string text(name(collective));
  if (collective != Collective::kBarrier) {
    if (reduces(collective)) text += " " + std::string(name(static_cast<Reduction>(reduction)));
    text += " " + elements(signature);
  }
  if (has_root(collective)) {
    const bool to = collective == Collective::kReduce || collective == Collective::kGather;
    text += (to ? " to root " : " from root ") + std::to_string(signature.root);
  }
  if (signature.algorithm == kRegistered) return text + " by a registered algorithm";
  return text + " by " + std::string(algorithms()[signature.algorithm]->name);
}

}  // namespace farandole
