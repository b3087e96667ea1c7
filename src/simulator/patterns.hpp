// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "model/max_min.hpp"
#include "model/network.hpp"

namespace farandole {

/// A set of messages that share links, and the rate that each of them gets.
struct MessagePattern {
  struct Pair {
    std::int32_t from, to;  // ranks of the network
    bool operator==(const Pair&) const = default;
  };
  std::vector<Pair> pairs;  // [flow]
  FlowLinks links;
  std::vector<double> rates;  // [flow]: bytes per second
  /// [flow]: flows of one group are connected by shared links; -1: shares no link.
  std::vector<std::int32_t> groups;
  std::size_t group_count = 0;
};

/// Patterns by their messages, each solved once.
///
/// Memory    at most about 64 MB; beyond that it drops all patterns.
/// Threads   one at a time.
class PatternTable {
 public:
  explicit PatternTable(const Network& network);
  std::shared_ptr<const MessagePattern> find(const std::vector<MessagePattern::Pair>& pairs);

 private:
  std::shared_ptr<MessagePattern> solve(const std::vector<MessagePattern::Pair>& pairs);
  void group(MessagePattern& pattern);

  const Network& network_;
  MaxMin max_min_;
  std::vector<std::int32_t> flow_on_;  // [link]: one of the flows on it; -1 between calls
  std::size_t kept_links_ = 0;
  std::unordered_map<std::uint64_t, std::vector<std::shared_ptr<const MessagePattern>>> by_hash_;
};

}  // namespace farandole
