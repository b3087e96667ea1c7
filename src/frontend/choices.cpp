// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/choices.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "algorithms/spec.hpp"
#include "base/settings.hpp"
#include "frontend/call.hpp"
#include "frontend/delegates.hpp"
#include "frontend/transports.hpp"
#include "transport/registry.hpp"

namespace farandole {
namespace {

constexpr std::size_t kTuningBytesMax = std::size_t{48} << 10;  // travels in a registration

/// How the ranks of a group are spread over hosts.
struct Spread {
  std::int64_t hosts = 0, ranks_per_host_max = 0;
  // Cores for ranks_per_host_max ranks at the ranks per core of the most crowded host; 0: enough.
  std::int64_t cores = 0;
  bool in_blocks = true;  // the ranks of a host are consecutive
};

Spread spread_of(const CommunicatorState& state) {
  std::map<std::string_view, std::int64_t> ranks;
  Spread spread;
  std::string_view last;
  for (const Rank world_rank : state.group->world_ranks) {
    const Member& member =
        state.context->membership.members[static_cast<std::size_t>(world_rank.value())];
    const std::int64_t there = ++ranks[member.host_id];
    if (there > 1 && last != member.host_id) spread.in_blocks = false;
    spread.ranks_per_host_max = std::max(spread.ranks_per_host_max, there);
    last = member.host_id;
  }
  spread.hosts = static_cast<std::int64_t>(ranks.size());
  double most = 1;  // ranks per core
  for (const auto& [host, cores] : state.context->membership.cores) {
    const auto found = ranks.find(host);
    if (found == ranks.end()) continue;
    const double here = static_cast<double>(found->second) / cores;
    if (here <= most) continue;
    most = here;
    const double ranks_there = static_cast<double>(spread.ranks_per_host_max);
    spread.cores = std::max<std::int64_t>(1, std::llround(ranks_there / most));
  }
  return spread;
}

/// All fields of a machine as text, so that machines can be compared byte by byte.
class MachineText {
 public:
  explicit MachineText(const Machine& machine) {
    add(machine.name);
    for (const Machine::Node& node : machine.nodes) add(node.name, static_cast<int>(node.kind));
    for (const Machine::Link& link : machine.links) {
      add(link.from, link.to, link.bytes_per_second, link.half_duplex, link.latency);
    }
    for (const std::int32_t device : machine.devices) add(device);
    for (const std::int32_t nic : machine.nic_of) add(nic);
    add(machine.hosts, machine.nic_bytes_per_second, machine.nic_latency, machine.hosts_per_rack,
        machine.uplinks, machine.uplink_bytes_per_second, machine.uplink_latency);
    for (const HopCost& hop : machine.hops) {
      add(hop.alpha, hop.call, hop.fill_chunks, hop.overhead, hop.crowding, hop.efficiency,
          hop.fan_efficiency);
      for (const auto& rate : hop.ring_rates)
        add(rate.ring_size, rate.bytes_per_second, rate.stride);
    }
    add(machine.reduce_seconds_per_byte, machine.copy_seconds_per_byte);
  }
  const std::string& text() const { return text_; }

 private:
  template <class... Fields>
  void add(const Fields&... fields) {
    (one(fields), ...);
    text_ += '\n';
  }
  void one(const std::string& field) { text_ += field + ' '; }
  void one(double field) { one(std::to_string(std::bit_cast<std::uint64_t>(field))); }
  template <class Integer>
  void one(Integer field) {
    one(std::to_string(field));
  }
  std::string text_;
};

/// Checks that every rank has the same text as rank 0; all ranks get the same result and error.
Result<void> same_everywhere(const std::string& mine, Communicator& world) {
  const CallOptions options{.name = "set_machine", .purpose = kSetMachine};
  std::uint64_t length = mine.size();
  auto sent = world.broadcast(&length, &length, Count{1}, DType::kUInt64, Rank{0}, options);
  if (!sent) return sent;
  std::string first = world.rank() == Rank{0} ? mine : std::string(length, ' ');
  sent = world.broadcast(first.data(), first.data(), Count{first.size()}, DType::kUInt8, Rank{0},
                         options);
  if (!sent) return sent;
  const std::uint8_t differs = first == mine ? 0 : 1;
  std::vector<std::uint8_t> all(static_cast<std::size_t>(world.size()));
  auto told = world.allgather(&differs, all.data(), Count{1}, DType::kUInt8, options);
  if (!told) return told;
  std::string others;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != 0) others += (others.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (others.empty()) return {};
  return Error{ErrorKind::kMismatch, "set_machine: rank " + others +
                                         " gave another machine than rank 0; nothing is changed."};
}

}  // namespace

PlanTable& choices_of(CommunicatorState& state) {
  if (state.choices) return *state.choices;
  ContextState& context = *state.context;
  const Spread spread = spread_of(state);
  const std::int64_t ranks = state.group->size();
  const Placement placement{ranks, spread.ranks_per_host_max, !spread.in_blocks};
  const GroupShape shape{
      ranks, spread.hosts,
      transport_for(context.environment.transport, spread.hosts == 1).tuning_name};
  const std::lock_guard lock(context.planning.machine_mutex);
  Machine machine = context.planning.machine
                        ? *context.planning.machine
                        : assumed_machine(spread.ranks_per_host_max, spread.hosts,
                                          context.environment.transport, spread.cores);
  state.choices = std::make_unique<PlanTable>(machine, placement, shape, context.planning.tuning,
                                              reachable_delegates(state));
  return *state.choices;
}

Result<std::string> read_tuning_file() {
  auto path = text_setting("FARANDOLE_TUNING");
  if (!path) return path.error();
  if (path->empty()) return std::string();
  std::ifstream file(*path, std::ios::binary);
  const auto wrong = [&](const std::string& why, const std::string& allowed) {
    return Error{ErrorKind::kInvalidArgument,
                 "FARANDOLE_TUNING is '" + *path + "', " + why + ", allowed is " + allowed + "."};
  };
  if (!file)
    return wrong(std::string("which gives: ") + strerror(errno), "a file that can be read");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() > kTuningBytesMax) {
    return wrong("which has " + std::to_string(text.size()) + " bytes",
                 "at most " + std::to_string(kTuningBytesMax));
  }
  if (auto table = parse_tuning(text, *path, transport_names()); !table) return table.error();
  return text;
}

Result<void> adopt_tuning(std::string_view text, Planning& planning) {
  auto table = parse_tuning(text, "rank 0's FARANDOLE_TUNING", transport_names());
  if (!table) return table.error();
  planning.tuning = *std::move(table);
  return {};
}

Result<void> Context::set_machine(const Machine& machine) {
  Communicator all = world();
  // Every rank has to take part, even if its own machine is not valid.
  auto valid = check(machine);
  auto same = same_everywhere(valid ? MachineText(machine).text() : std::string(), all);
  if (!valid) return valid;
  if (!same) return same;
  {
    const std::lock_guard lock(state_->planning.machine_mutex);
    state_->planning.machine = std::make_unique<const Machine>(machine);
  }
  for (const auto& communicator : state_->communicators.living()) {
    const std::lock_guard lock(communicator->plans_mutex);
    communicator->choices.reset();
    communicator->operations.clear();
  }
  return {};
}

Result<void> Communicator::set_algorithm(Collective collective, Bytes bytes,
                                         std::string_view algorithm) {
  if (!state_->context->environment.origin.here()) return closed_error(*state_, "set_algorithm");
  if (!algorithm.empty()) {
    const auto parsed = parse_spec(collective, algorithm, size(), 0);
    if (!parsed) return parsed.error();
  }
  const std::lock_guard lock(state_->plans_mutex);
  choices_of(*state_).set(collective, bytes.value(), algorithm);
  state_->operations.clear();
  return {};
}

std::string Communicator::algorithm(Collective collective, Bytes bytes) const {
  const std::lock_guard lock(state_->plans_mutex);
  return choices_of(*state_).find(collective, bytes.value());
}

}  // namespace farandole
