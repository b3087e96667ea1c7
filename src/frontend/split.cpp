// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <utility>

#include "base/fingerprint.hpp"
#include "engine/batch.hpp"
#include "farandole/farandole.hpp"
#include "frontend/call.hpp"
#include "frontend/split_request.hpp"

namespace farandole {
namespace {

/// The requests of all ranks of the parent; every rank gets the same requests, or the same error.
Result<std::vector<SplitRequest>> gather(Communicator& parent, const SplitRequest& mine,
                                         const CallOptions& options) {
  const std::string own = encode(mine);
  const auto size = static_cast<std::size_t>(parent.size());
  std::string told(size * kSplitRequestBytes, '\0');
  auto gathered =
      parent.allgather(own.data(), told.data(), Count{own.size()}, DType::kUInt8, options);
  if (!gathered) return gathered.error();
  std::vector<SplitRequest> all;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const std::string_view bytes(told.data() + rank * kSplitRequestBytes, kSplitRequestBytes);
    const auto request = decode_split_request(bytes);
    if (!request) {
      return Error{ErrorKind::kInternal,
                   "split: rank " + std::to_string(rank) + " sent a malformed request."};
    }
    all.push_back(*request);
  }
  return all;
}

/// Gathers the requests and agrees on a number that is free on every rank of the parent, higher
/// than all that any of them has used. Two threads may split two parents at once, so a number that
/// was free when it was offered may be taken when all ranks have seen it; then all ranks try again.
Result<std::vector<SplitRequest>> agree(Communicator& parent, CommunicatorRegistry& communicators,
                                        SplitRequest mine, std::uint32_t& number) {
  const CallOptions options{.name = "split", .purpose = kSplit};
  for (;;) {
    mine.number = communicators.next_number();
    auto all = gather(parent, mine, options);
    if (!all) return all;
    number = std::ranges::max(*all, {}, &SplitRequest::number).number;
    if (number >= kGroupNumbers) {
      return Error{ErrorKind::kInternal, "split: all numbers for communicators are used up."};
    }
    std::uint8_t free = communicators.take_number(number) ? 1 : 0;
    auto agreed = parent.allreduce(&free, &free, Count{1}, DType::kUInt8, Reduction::kMin, options);
    if (!agreed) return agreed.error();
    if (free != 0) return all;
  }
}

std::shared_ptr<const Group> make_group(const Group& parent,
                                        const std::vector<SplitRequest>& requests,
                                        std::uint32_t number) {
  const auto self = static_cast<std::size_t>(parent.self.value());
  std::vector<std::size_t> members;
  for (std::size_t rank = 0; rank < requests.size(); ++rank) {
    if (requests[rank].takes_part && requests[rank].color == requests[self].color) {
      members.push_back(rank);
    }
  }
  std::ranges::stable_sort(members, {}, [&](std::size_t rank) { return requests[rank].key; });
  auto group = std::make_shared<Group>();
  group->communicator = number;
  for (const std::size_t rank : members) {
    if (rank == self) group->self = Rank{static_cast<int>(group->world_ranks.size())};
    group->world_ranks.push_back(parent.world_ranks[rank]);
    group->transports.push_back(parent.transports[rank]);
  }
  return group;
}

/// Different lists get different colors.
std::int64_t color_of(std::span<const Rank> ranks) {
  Fingerprint list;
  for (const Rank rank : ranks) list.add(static_cast<std::uint64_t>(rank.value()));
  return static_cast<std::int64_t>(list.value());
}

Result<void> check_list(const char* call, std::span<const Rank> ranks, int size) {
  std::set<Rank> seen;
  for (const Rank rank : ranks) {
    if (rank.value() < 0 || rank.value() >= size || !seen.insert(rank).second) {
      return bad_argument(call, "ranks", "a list with " + std::to_string(rank.value()),
                          "each rank from 0 to " + std::to_string(size - 1) + " once at most");
    }
  }
  return {};
}

}  // namespace

Result<std::optional<Communicator>> Communicator::split(std::optional<std::int64_t> color,
                                                        std::int64_t key) {
  if (!is_open(*state_)) return closed_error(*state_, "split");
  const SplitRequest mine{color.value_or(0), key, color.has_value()};
  std::uint32_t number = 0;
  auto requests = agree(*this, state_->context->communicators, mine, number);
  if (!requests) return requests.error();
  if (!color) return std::optional<Communicator>();
  auto group = make_group(*state_->group, *requests, number);
  return std::optional(Communicator(make_communicator(state_->context, std::move(group))));
}

Result<std::optional<Communicator>> Communicator::group(std::span<const Rank> ranks) {
  if (auto valid = check_list("group", ranks, size()); !valid) return valid.error();
  const auto mine = std::ranges::find(ranks, rank());
  const bool takes_part = mine != ranks.end();
  const auto color = takes_part ? std::optional(color_of(ranks)) : std::nullopt;
  auto made = split(color, mine - ranks.begin());
  if (!made || !takes_part) return made;
  const std::vector<Rank>& members = (*made)->world_ranks();
  const bool same = std::ranges::equal(ranks, members, {}, [&](Rank listed) {
    return world_ranks()[static_cast<std::size_t>(listed.value())];
  });
  if (same) return made;
  return Error{ErrorKind::kMismatch,
               "group: ranks disagree on the list; " + std::to_string(members.size()) + " of the " +
                   std::to_string(ranks.size()) + " ranks in it gave the same one."};
}

Result<Communicator> Communicator::create_group(std::span<const Rank> ranks, int tag,
                                                std::optional<std::chrono::milliseconds> timeout) {
  constexpr const char* kCall = "create_group";
  // An aborted parent still knows its ranks, and nothing else is needed from it.
  if (!is_open(*state_)) {
    if (const Error error = closed_error(*state_, kCall); error.kind != ErrorKind::kAborted) {
      return error;
    }
  }
  if (auto valid = check_list(kCall, ranks, size()); !valid) return valid.error();
  const auto self = std::ranges::find(ranks, rank());
  if (self == ranks.end()) {
    return bad_argument(kCall, "ranks",
                        "a list without this rank, " + std::to_string(rank().value()),
                        "the members; the others do not call it");
  }
  ContextState& context = *state_->context;
  const Group& parent = *state_->group;
  auto group = std::make_shared<Group>();
  group->self = Rank{static_cast<int>(self - ranks.begin())};
  GroupKey key{tag, parent.communicator, parent.first().value(), {}};
  for (const Rank rank : ranks) {
    const auto at = static_cast<std::size_t>(rank.value());
    group->world_ranks.push_back(parent.world_ranks[at]);
    group->transports.push_back(parent.transports[at]);
    key.ranks.push_back(parent.world_ranks[at].value());
  }
  const auto patience = timeout.value_or(context.environment.job.start_timeout);
  const auto number = context.membership.gathering.gather(
      context.environment.job.rank, context.membership.members, key, Deadline::after(patience),
      [&](std::string_view message) { context.membership.tell_all(message); });
  if (!number) return number.error();
  group->communicator = *number;
  return Communicator(make_communicator(state_->context, std::move(group)));
}

Result<Communicator> Communicator::node() {
  const Members& members = state_->context->membership.members;
  const auto host = [&](Rank world_rank) -> const std::string& {
    return members[static_cast<std::size_t>(world_rank.value())].host_id;
  };
  const std::vector<Rank>& ranks = world_ranks();
  const auto first = std::ranges::find(ranks, host(ranks[std::size_t(rank().value())]), host);
  auto made = split(first - ranks.begin(), rank().value());
  if (!made) return made.error();
  return **made;
}

Result<Communicator> Communicator::across() {
  const Members& members = state_->context->membership.members;
  const std::vector<Rank>& ranks = world_ranks();
  const auto self = static_cast<std::size_t>(rank().value());
  const auto host = [&](std::size_t at) -> const std::string& {
    return members[static_cast<std::size_t>(ranks[at].value())].host_id;
  };
  std::int64_t position = 0;
  for (std::size_t at = 0; at < self; ++at) position += host(at) == host(self) ? 1 : 0;
  auto made = split(position, rank().value());
  if (!made) return made.error();
  return **made;
}

Result<void> Communicator::abort(const std::string& reason) {
  if (is_open(*state_)) {
    state_->context->fabric.engine->abort(*state_->group, reason);
    return {};
  }
  const Error error = closed_error(*state_, "abort");
  return error.kind == ErrorKind::kAborted ? Result<void>() : error;
}

Result<void> Communicator::free() {
  if (!state_->context->environment.origin.here()) return closed_error(*state_, "free");
  if (state_->group->communicator == 0) {
    return Error{ErrorKind::kInvalidArgument,
                 "free: the world cannot be freed; shutdown() leaves the job."};
  }
  state_->retire();
  return {};
}

}  // namespace farandole
