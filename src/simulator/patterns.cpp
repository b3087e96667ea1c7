// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/patterns.hpp"

#include <numeric>

#include "base/fingerprint.hpp"
#include "simulator/disjoint_sets.hpp"

namespace farandole {
namespace {

constexpr std::size_t kKeptLinksMax = std::size_t{1} << 23;

std::uint64_t hash_of(const std::vector<MessagePattern::Pair>& pairs) {
  Fingerprint list;
  for (const MessagePattern::Pair& pair : pairs) {
    const auto from = static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair.from));
    list.add(from << 32 | static_cast<std::uint32_t>(pair.to));
  }
  return list.value();
}

}  // namespace

PatternTable::PatternTable(const Network& network)
    : network_(network),
      max_min_(network.capacities()),
      flow_on_(network.capacities().size(), -1) {}

std::shared_ptr<const MessagePattern> PatternTable::find(
    const std::vector<MessagePattern::Pair>& pairs) {
  const std::uint64_t hash = hash_of(pairs);
  if (const auto known = by_hash_.find(hash); known != by_hash_.end()) {
    for (const auto& pattern : known->second) {
      if (pattern->pairs == pairs) return pattern;
    }
  }
  std::shared_ptr<MessagePattern> solved = solve(pairs);
  kept_links_ += solved->links.links.size();
  if (kept_links_ > kKeptLinksMax) {
    by_hash_.clear();
    kept_links_ = solved->links.links.size();
  }
  by_hash_[hash].push_back(solved);
  return solved;
}

std::shared_ptr<MessagePattern> PatternTable::solve(
    const std::vector<MessagePattern::Pair>& pairs) {
  auto pattern = std::make_shared<MessagePattern>();
  pattern->pairs = pairs;
  for (const MessagePattern::Pair& pair : pairs) {
    network_.route(pair.from, pair.to, pattern->links.links);
    pattern->links.close_flow();
  }
  max_min_.solve(pattern->links, pattern->rates);
  group(*pattern);
  return pattern;
}

void PatternTable::group(MessagePattern& pattern) {
  const std::size_t count = pattern.pairs.size();
  DisjointSets sets(count);
  for (std::size_t flow = 0; flow < count; ++flow) {
    for (const std::int32_t link : pattern.links.of(flow)) {
      std::int32_t& other = flow_on_[static_cast<std::size_t>(link)];
      if (other >= 0)
        sets.join(static_cast<std::uint32_t>(flow), static_cast<std::uint32_t>(other));
      other = static_cast<std::int32_t>(flow);
    }
  }
  for (const std::int32_t link : pattern.links.links) flow_on_[static_cast<std::size_t>(link)] = -1;
  std::vector<std::int32_t> size(count, 0), number(count, -1);
  for (std::uint32_t flow = 0; flow < count; ++flow) ++size[sets.find(flow)];
  pattern.groups.assign(count, -1);
  for (std::uint32_t flow = 0; flow < count; ++flow) {
    const std::uint32_t set = sets.find(flow);
    if (size[set] == 1) continue;
    if (number[set] < 0) number[set] = static_cast<std::int32_t>(pattern.group_count++);
    pattern.groups[flow] = number[set];
  }
}

}  // namespace farandole
