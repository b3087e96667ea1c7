// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "farandole/result.hpp"

namespace farandole {

/// How far a message goes: to another device of the host, to another host of the rack (or of a
/// network that is one switch), or through the switches above the racks.
enum class Hop : std::uint8_t { kHost, kRack, kFabric };
inline constexpr std::size_t kHopCount = 3;
inline constexpr const char* kHopNames[kHopCount] = {"host", "rack", "fabric"};

/// What a message costs beyond the wires that it uses. From the moment when both ends have reached
/// it, a message of b bytes takes
///
///   alpha + latency of its links + overhead * further + crowding * around
///         + b (1 + fill) / (rate * efficiency * fan)
///
/// and then its reduction at the receiver. All times are in seconds. For planner and simulator:
///
///   stage     a stage of the schedule, or all of a schedule without stages: one library call. A
///             hierarchy of h layers has 2 h - 1 stages: each layer scatters and gathers, the last
///             one does both in one stage.
///   call      paid by a rank when it enters its first round with messages of a stage, before they
///             start: the largest one of the hops that they go over
///   fill      fill_chunks for messages that a rank sends in that round, else 0
///   further   messages over this hop that the sender sends, or the receiver receives, in the same
///             round: the larger number, minus one
///   around    messages over this hop that all ranks send in the same round, minus one; over kHost
///             all ranks of the host
///   fan       fan_efficiency if `further` is not 0, else 1
///
/// Source    docs/design/0010
struct HopCost {
  double alpha = 0;        // start-up of one message
  double call = 0;         // of one library call or kernel launch
  double fill_chunks = 0;  // of a message that a stage moves before its pipeline is full
  double overhead = 0;     // of a message for each of the `further` ones
  // Of a message for each of the others that are `around`, if ranks share the cores that handle
  // messages: more ranks than cores, or hosts that are namespaces of one machine.
  double crowding = 0;
  double efficiency = 1;  // share of the wires' rate that a message reaches, 0 < efficiency <= 1
  // Share of that rate if a rank sends or receives several at once: they come in bursts, one after
  // the other, which leaves gaps at ranks that wait for the later ones. 0 < fan_efficiency <= 1.
  double fan_efficiency = 1;
  /// Measured rates of a ring among `ring_size` neighbours, in bytes per second. In stages that a
  /// schedule calls rings, they replace the rate of the wires, for machines where several paths
  /// join; efficiency still applies. Sorted by size, then by stride, each once; a rate for the
  /// ring's own stride takes precedence over one for any stride. A size that is not listed has
  /// none.
  struct RingRate {
    std::int64_t ring_size = 0;
    double bytes_per_second = 0;
    std::int64_t stride = 0;  // positions from one member to the next; 0: any
    bool operator==(const RingRate&) const = default;
  };
  std::vector<RingRate> ring_rates;
  bool operator==(const HopCost&) const = default;
};

/// A description of a machine: one host as a graph, the number of such hosts, and a network of one
/// switch or of racks that are joined by spines. Comes from a machine file
/// (docs/formats/machine.md), from discovery or from measurement.
///
/// Threads   immutable once checked; share freely.
struct Machine {
  enum class Kind : std::uint8_t { kCpu, kGpu, kMemory, kSwitch, kNic };
  struct Node {
    std::string name;
    Kind kind = Kind::kCpu;
    bool operator==(const Node&) const = default;
  };
  struct Link {
    std::int32_t from = 0, to = 0;  // nodes; a link goes both ways
    double bytes_per_second = 0;    // of each direction, or of both together:
    bool half_duplex = false;       // the directions share the rate
    double latency = 0;             // seconds
    bool operator==(const Link&) const = default;
  };

  std::string name;

  // One host.
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<std::int32_t> devices;  // nodes on which ranks live, by local rank
  std::vector<std::int32_t> nic_of;   // [devices]: the NIC by which each leaves the host
  // The network. A NIC has a full-duplex link to its rack's switch.
  std::int64_t hosts = 1;
  double nic_bytes_per_second = 0;  // each direction; needed if hosts > 1
  double nic_latency = 0;
  std::int64_t hosts_per_rack = 0;  // 0: all hosts on one switch
  std::int64_t uplinks = 0;         // of each rack, one to each spine
  double uplink_bytes_per_second = 0;
  double uplink_latency = 0;
  // Costs beyond the wires.
  std::array<HopCost, kHopCount> hops;
  double reduce_seconds_per_byte = 0;  // gamma: one operand's bytes into the other's
  double copy_seconds_per_byte = 0;    // a local copy

  std::int64_t devices_per_host() const { return static_cast<std::int64_t>(devices.size()); }
  /// Bytes per second that a link carries from its `from` to its `to` if `forward`, else back.
  /// Infinite from a processor with a rank to a memory, if the link is not half duplex: receivers
  /// read from there what is sent to them, so that it costs them and not the sender, however many
  /// they are.
  double rate(const Link& link, bool forward) const;
  bool operator==(const Machine&) const = default;
};

/// Errors    kInvalidArgument naming the field, what it is and what is allowed: indices out of
///           range, rates that are not positive and finite, devices that no link joins, a NIC that
///           its device cannot reach.
Result<void> check(const Machine& machine);

}  // namespace farandole
