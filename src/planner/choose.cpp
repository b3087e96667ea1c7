// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/choose.hpp"

namespace farandole {
namespace {

// In shared memory every rank reads every other one at no cost per connection, so "direct" wins
// as soon as the data outweighs a few flags. Between sockets each step costs a round trip:
// lg p full-size exchanges until bandwidth counts, then lg p halving ones, then the ring.
constexpr std::size_t kRecursiveDoublingMax = 16 << 10;
constexpr std::size_t kRabenseifnerMax = 1 << 20;
constexpr std::size_t kDirectMinBytes = 4 << 10;

std::string_view choose_allreduce(const Situation& situation) {
  const std::size_t bytes = situation.bytes.value();
  if (situation.peer_memory) return bytes < kDirectMinBytes ? "recursive_doubling" : "direct";
  if (bytes <= kRecursiveDoublingMax) return "recursive_doubling";
  return bytes <= kRabenseifnerMax ? "rabenseifner" : "ring";
}

}  // namespace

std::string_view choose_algorithm(const Situation& situation) {
  switch (situation.collective) {
    case Collective::kAllreduce:
      return choose_allreduce(situation);
    case Collective::kReducescatter:
    case Collective::kAllgather:
      return situation.peer_memory ? "direct" : "ring";
    case Collective::kBroadcast:
      return "binomial";
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
      return "binomial";
    case Collective::kAlltoall:
      return "pairwise";
    case Collective::kBarrier:
      return "dissemination";
  }
  return "";
}

}  // namespace farandole
