// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "farandole/result.hpp"
#include "model/machine.hpp"

namespace farandole {

/// Where the ranks of a group live; the same on every rank of it.
struct Placement {
  std::int64_t rank_count = 1;
  std::int64_t ranks_per_host = 0;  // at most; 0: as many as the machine has devices
  bool scattered = false;           // rank r on host r % hosts, not on host r / ranks_per_host
  auto operator<=>(const Placement&) const = default;
};

/// Which ranks send to which in one round. Only ranks below rank_count take part.
struct Pattern {
  enum class Kind : std::uint8_t {
    kRing,      // in groups of `size` ranks `stride` apart, each to the next one, the last to the
                // first: a stage to which HopCost::ring_rates apply
    kCycle,     // the same, but ring_rates do not apply
    kBothWays,  // as kCycle, and each also to the one before
    kAll,       // in such groups, each to all others
    kFan,       // ranks below `senders` to those stride, 2 stride, ... (size - 1) stride above, in
                // every group of `group` ranks; 0: among all
    kRotate,    // each to the rank `stride` above it, modulo rank_count
  };
  Kind kind = Kind::kRing;
  std::int64_t stride = 1;
  std::int64_t size = 2;
  std::int64_t senders = 0;
  std::int64_t group = 0;
  std::int64_t every = 1;  // only multiples of it send
  bool inward = false;     // a fan the other way: to the `senders`
  auto operator<=>(const Pattern&) const = default;

  static Pattern ring(std::int64_t stride, std::int64_t size) {
    return {Kind::kRing, stride, size};
  }
  static Pattern cycle(std::int64_t stride, std::int64_t size) {
    return {Kind::kCycle, stride, size};
  }
  static Pattern both_ways(std::int64_t stride, std::int64_t size) {
    return {Kind::kBothWays, stride, size};
  }
  /// Pairs of ranks `stride` apart, in both directions.
  static Pattern pairs(std::int64_t stride) { return cycle(stride, 2); }
  static Pattern all(std::int64_t stride, std::int64_t size) { return {Kind::kAll, stride, size}; }
  static Pattern fan(std::int64_t stride, std::int64_t size, std::int64_t senders,
                     std::int64_t group = 0) {
    return {Kind::kFan, stride, size, senders, group};
  }
  Pattern towards_senders() const {
    Pattern back = *this;
    back.inward = true;
    return back;
  }
  Pattern of_every(std::int64_t ranks) const {
    Pattern some = *this;
    some.every = ranks;
    return some;
  }
  static Pattern rotate(std::int64_t stride) { return {Kind::kRotate, stride}; }
};

/// The time of a round of messages of b bytes each: the slowest hop's alpha + b * seconds_per_byte.
struct RoundCost {
  Hop hop = Hop::kHost;
  double alpha = 0, seconds_per_byte = 0;
  double seconds(double bytes) const { return alpha + bytes * seconds_per_byte; }
};

/// A machine as the closed forms see it: for a pattern, how far its messages go and how many of
/// them share the busiest link of each kind. All hosts and racks are alike, so the first of each
/// stands for the others. Messages of a round that share a link, including those of one rank,
/// divide its rate: the bandwidth of a layer is divided by the number of messages that share it
/// (w_j / prod_{k<j} p_k in [Cho19]'s model), and that of a rack's uplinks by the number that leave
/// the rack.
///
/// Memory    keeps the answers, a few words per pattern.
/// Threads   one at a time.
class Levels {
 public:
  /// `machine` has passed check(). Ranks beyond the devices of a host share them in turn; hosts
  /// beyond those of the machine are like the others.
  Levels(const Machine& machine, const Placement& placement);
  /// Every rank has a port of 1 / beta bytes per second each way on one switch: the alpha-beta
  /// model.
  static Levels uniform(std::int64_t rank_count, double alpha, double beta);

  std::int64_t rank_count() const { return placement_.rank_count; }
  const Placement& placement() const { return placement_; }
  /// Ranks of a host; ranks of a rack, or of all hosts if there are no racks.
  std::int64_t ranks_per_host() const { return ranks_per_host_; }
  std::int64_t ranks_per_rack() const { return ranks_per_rack_; }
  const Machine& machine() const { return machine_; }
  const HopCost& extras(Hop hop) const { return machine_.hops[static_cast<std::size_t>(hop)]; }

  /// Cost of one round of this pattern, each message of `bytes`.
  RoundCost round(const Pattern& pattern, double bytes);
  /// The largest HopCost::call of the hops that this pattern's messages go over.
  double call(const Pattern& pattern);
  /// How many messages go from each rank to the next one, by hop; the last rank sends none.
  std::array<std::int64_t, kHopCount> chain_hops() const;
  /// By hop: the lowest rank that rank 0 reaches over it.
  std::array<std::int64_t, kHopCount> hop_distances() const;

 private:
  struct Loads;
  using HopTable = std::array<std::optional<RoundCost>, kHopCount>;
  struct Step {
    std::int32_t link = -1;  // 2 * link + direction
    std::int32_t node = -1;
  };

  const HopTable& costs(const Pattern& pattern);
  HopTable measure(const Pattern& pattern) const;
  void measure_host(std::int64_t host, const Pattern& pattern, Loads& loads, HopTable& table) const;
  void count_crowd(const Pattern& pattern, Loads& loads) const;
  double start_up(const Loads& loads, Hop hop) const;
  double seconds_per_byte(const Loads& loads, Hop hop, const Pattern& pattern) const;
  double ring_rate(Hop hop, const Pattern& pattern) const;
  void find_routes();
  std::vector<Step> routes_from(std::int32_t start, double width,
                                const std::vector<std::vector<Step>>& at) const;
  std::int64_t host_of(std::int64_t rank) const;
  std::int64_t local_of(std::int64_t rank) const;
  std::int64_t rank_at(std::int64_t host, std::int64_t local) const;
  std::int64_t rack_of(std::int64_t rank) const;
  std::size_t device_of(std::int64_t rank) const;
  Hop hop_between(std::int64_t from, std::int64_t to) const;
  void add_flow(Loads& loads, const Pattern& pattern, std::int64_t from, std::int64_t to) const;
  void add_path(Loads& loads, std::size_t device, std::int32_t node, Hop hop, bool back) const;
  void add_rack_flows(Loads& loads, const Pattern& pattern) const;

  Machine machine_;
  Placement placement_;
  std::int64_t ranks_per_host_ = 1, hosts_ = 1, ranks_per_rack_ = 1;
  /// Where a device's messages enter the routes of a table.
  struct Start {
    std::size_t table = 0;
    std::int32_t node = -1;  // the device itself, or the one neighbour that it has
    Step step;               // from the device to that
  };
  std::vector<std::vector<Step>> routes_;  // [table][node]: the last step towards the node
  std::vector<Start> starts_;              // [device]
  std::map<Pattern, HopTable> known_;
};

}  // namespace farandole
