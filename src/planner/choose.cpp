// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/choose.hpp"

namespace farandole {
namespace {

constexpr std::size_t kKiB = 1 << 10, kMiB = 1 << 20;

// In shared memory every rank reads every other one at no cost per connection, so "direct" wins
// as soon as the data outweighs a few flags. Between sockets each step costs a round trip:
// lg p full-size exchanges until bandwidth counts, then lg p halving ones, then the ring.
constexpr std::size_t kRecursiveDoublingMax = 16 * kKiB;
constexpr std::size_t kRabenseifnerMax = 1 * kMiB;
constexpr std::size_t kDirectMinBytes = 4 * kKiB;
// "direct" has a lane and an action per rank.
constexpr int kDirectRanksMax = 1024;
// Trees until bandwidth counts; then what sends each byte about once.
constexpr std::size_t kTreeMax = 256 * kKiB;
constexpr std::size_t kScatterAllgatherMax = 4 * kMiB;
constexpr int kScatterAllgatherRanksMax = 512;  // its proof takes p^2 steps
// A tree of two levels has no rank that sends much more than once.
constexpr int kTreeRanks = 4;
// Of the larger side; few bytes per partner are better sent together.
constexpr std::size_t kBruckMax = 16 * kKiB;
constexpr std::size_t kHalvingMax = 256 * kKiB;

std::string_view choose_allreduce(const Situation& situation, bool direct) {
  const std::size_t bytes = situation.bytes.value();
  if (direct) return bytes < kDirectMinBytes ? "recursive_doubling" : "direct";
  if (bytes <= kRecursiveDoublingMax) return "recursive_doubling";
  return bytes <= kRabenseifnerMax ? "rabenseifner" : "ring";
}

std::string_view choose_broadcast(const Situation& situation) {
  const std::size_t bytes = situation.bytes.value();
  const int ranks = situation.rank_count;
  if (bytes <= kTreeMax || ranks <= kTreeRanks) return "binomial";
  const bool scatter = bytes <= kScatterAllgatherMax && ranks <= kScatterAllgatherRanksMax;
  return scatter ? "scatter_allgather" : "pipelined_chain";
}

}  // namespace

std::string_view choose_algorithm(const Situation& situation) {
  const std::size_t bytes = situation.bytes.value();
  const bool few = situation.rank_count <= kDirectRanksMax, direct = situation.peer_memory && few;
  switch (situation.collective) {
    case Collective::kAllreduce:
      return choose_allreduce(situation, direct);
    case Collective::kReducescatter:
      if (direct) return "direct";
      return bytes <= kHalvingMax ? "halving" : "ring";
    case Collective::kAllgather:
      if (direct) return "direct";
      return bytes <= kBruckMax ? "bruck" : "ring";
    case Collective::kBroadcast:
      return choose_broadcast(situation);
    case Collective::kReduce:
      return bytes <= kTreeMax || situation.rank_count <= 2 ? "binomial" : "rabenseifner";
    case Collective::kGather:
    case Collective::kScatter:
      return bytes <= kTreeMax || !few ? "binomial" : "direct";
    case Collective::kAlltoall:
      if (direct) return "direct";
      return bytes <= kBruckMax ? "bruck" : "pairwise";
    case Collective::kBarrier:
      return "dissemination";
  }
  return "";
}

}  // namespace farandole
