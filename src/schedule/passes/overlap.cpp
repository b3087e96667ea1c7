// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/passes/overlap.hpp"

#include <algorithm>

namespace farandole {
namespace {

using Actions = std::span<BoundAction>;
constexpr std::uint32_t kNone = BoundAction::kNone;

// From this size on, what is copied into a buffer has left the caches before it is used. Allgather
// of 64 MiB, two ranks on the cores of one AMD EPYC: 6.6 ms with std::memmove, which reads what it
// overwrites, and 5.4 past the caches; of 8 MiB 0.56 and 0.42 ms, together with
// CopyPolicy::cached().
constexpr Bytes kToMemoryMin{std::size_t{8} << 20};

// Up to this size a message is taken by one poll of the peer's memory, or fits in one packet, so
// that it is worth sending before receives are posted: posting one takes a tenth of the time of a
// small allgather.
constexpr Bytes kUrgentMax{4096};

Actions actions_of(Actions actions, const BoundRound& round) {
  return actions.subspan(round.first, round.count);
}

bool same_memory(const BoundTerms& terms, const ByteSpan& a, const ByteSpan& b) {
  return a.buffer == b.buffer ||
         (terms.in_offset && a.buffer != Buffer::kScratch && b.buffer != Buffer::kScratch);
}

/// Where a place begins in the memory that it shares with other places, in bytes.
std::int64_t begin(const BoundTerms& terms, const ByteSpan& place) {
  const auto offset = static_cast<std::int64_t>(place.offset);
  return place.buffer == Buffer::kIn ? offset + terms.in_offset.value_or(0) : offset;
}

std::int64_t end(const BoundTerms& terms, const ByteSpan& place) {
  return begin(terms, place) + static_cast<std::int64_t>(place.bytes.value());
}

bool is_small(const ByteSpan& place) {
  return place.bytes <= kUrgentMax;
}

/// Whether two receives that reduce into one place may take turns, piece by piece.
bool take_turns(const BoundAction& before, const BoundAction& action) {
  const Action &first = *before.action, &second = *action.action;
  if (before.held || !before.receives() || !action.receives()) return false;
  if (!second.operand || second.operand != second.target || second.target != first.target) {
    return false;
  }
  return before.streams && action.streams;
}

/// Whether the copy uses nothing that `before` writes, and `before` nothing that the copy writes.
bool copies_beside(const BoundTerms& terms, const BoundAction& before, const BoundAction& copy) {
  if (!copy.is_local() || copy.reduces() || reduces(terms.collective) ||
      copy.source.buffer != Buffer::kIn || copy.target.buffer != Buffer::kOut) {
    return false;
  }
  if (overlap(terms, copy.target, before.source)) return false;
  // A send that is neither small nor moves in pieces would only wait for the copy.
  if (before.sends()) return is_small(before.source) || before.streams;
  return !overlap(terms, copy.source, before.target) &&
         !overlap(terms, copy.target, before.target) &&
         !overlap(terms, copy.target, before.operand);
}

/// The index of a send that reads the copy's source and is long enough to report how far it has
/// come; kNone if there is none.
std::uint32_t carrier(const BoundTerms& terms, Actions actions, const BoundRound& round,
                      const BoundAction& copy) {
  for (std::uint32_t i = round.first; i < round.first + round.count; ++i) {
    const BoundAction& one = actions[i];
    if (one.sends() && one.streams && is_same(terms, one.source, copy.source)) return i;
  }
  return kNone;
}

/// Whether all of the second round are copies that may begin with the first and gain from it.
bool copies_beside(const BoundTerms& terms, Actions actions, const BoundRound& first,
                   const BoundRound& second) {
  return std::ranges::all_of(actions_of(actions, second), [&](const BoundAction& copy) {
    const bool pays = is_small(copy.source) || outgrows_caches(terms) ||
                      carrier(terms, actions, first, copy) != kNone;
    if (copy.held || !pays) return false;
    return std::ranges::all_of(actions_of(actions, first), [&](const BoundAction& before) {
      return copies_beside(terms, before, copy);
    });
  });
}

/// The receive that fills what the second round sends, if that round may begin with the first one.
/// All receives of the first round fill one place, each behind the one before it. Peers do the
/// same, so a peer that sends a piece of its result has read that piece of this rank's source, and
/// may be told to overwrite it.
std::uint32_t flows_into(const BoundTerms& terms, Actions actions, const BoundRound& first,
                         const BoundRound& second) {
  if (terms.collective != Collective::kAllreduce) return kNone;
  std::uint32_t last = kNone;
  for (std::uint32_t i = first.first; i < first.first + first.count; ++i) {
    const BoundAction& one = actions[i];
    if (one.held || one.is_local()) return kNone;
    if (!one.receives()) continue;
    if (!one.streams || one.behind != last) return kNone;
    last = i;
  }
  if (last == kNone) return kNone;
  const BoundAction& fills = actions[last];
  const auto may_begin = [&](const BoundAction& one) {
    if (one.held || one.is_local() || !one.streams) return false;
    if (one.sends()) return is_same(terms, one.source, fills.target);
    const auto leaves_alone = [&](const BoundAction& before) {
      if (before.receives()) {
        return !overlap(terms, one.target, before.target) &&
               !overlap(terms, one.target, before.operand);
      }
      return !overlap(terms, one.target, before.source) ||
             (is_same(terms, one.target, before.source) && one.peer == before.peer);
    };
    return !one.reduces() && std::ranges::all_of(actions_of(actions, first), leaves_alone);
  };
  return std::ranges::all_of(actions_of(actions, second), may_begin) ? last : kNone;
}

/// Lets memory that is both copied and sent be read once: it is copied while the transport reads
/// it.
void ride_sends(const BoundTerms& terms, Actions actions, const BoundRound& round) {
  const std::uint32_t end = round.first + round.count;
  for (std::uint32_t i = round.first; i < end; ++i) {
    BoundAction& copy = actions[i];
    const bool starts_another = i + 1 < end && actions[i + 1].held;
    if (!copy.is_local() || copy.reduces() || copy.held || starts_another) continue;
    copy.rides = carrier(terms, actions, round, copy);
    if (copy.rides == kNone) continue;
    for (BoundAction& one : actions_of(actions, round)) {
      if (one.sends() && is_same(terms, one.source, copy.source)) one.along = i;
    }
  }
}

/// Small messages come first, since they should be on their way early. Then receives, since a
/// transport may announce a long message's receive to the peer, and since sends behind a receive
/// must follow it.
void put_in_order(Actions actions, BoundRound& round) {
  std::uint32_t* last = &round.posted_first;
  const auto add_those = [&](auto which) {
    for (std::uint32_t i = round.first; i < round.first + round.count; ++i) {
      if (!which(actions[i])) continue;
      *last = i;
      last = &actions[i].next;
    }
  };
  const auto is_urgent = [](const BoundAction& one) {
    return one.sends() && one.behind == kNone &&
           one.bytes <= std::max(kUrgentMax, one.follow_bytes);
  };
  const auto comes_next = [](const BoundAction& one) {
    return one.receives() || one.rides != kNone;
  };
  add_those(is_urgent);
  add_those(comes_next);
  add_those([&](const BoundAction& one) { return !comes_next(one) && !is_urgent(one); });
  *last = kNone;
}

}  // namespace

bool overlap(const BoundTerms& terms, const ByteSpan& a, const ByteSpan& b) {
  return same_memory(terms, a, b) &&
         std::max(begin(terms, a), begin(terms, b)) < std::min(end(terms, a), end(terms, b));
}

bool is_same(const BoundTerms& terms, const ByteSpan& a, const ByteSpan& b) {
  return same_memory(terms, a, b) && begin(terms, a) == begin(terms, b) && a.bytes == b.bytes;
}

bool is_idle(const BoundTerms& terms, const BoundAction& action) {
  if (!action.is_local() || action.reduces()) return false;
  return action.source.bytes.value() == 0 || is_same(terms, action.source, action.target);
}

bool outgrows_caches(const BoundTerms& terms) {
  return terms.out_bytes >= kToMemoryMin;
}

void release(const BoundTerms& terms, const BoundAction& before, std::uint32_t before_index,
             BoundAction& action) {
  if (take_turns(before, action)) {
    action.held = false;
    action.behind = before_index;
  } else if (!before.held && outgrows_caches(terms) && copies_beside(terms, before, action)) {
    action.held = false;
  }
}

bool join(const BoundTerms& terms, Actions actions, BoundRound& first, const BoundRound& second) {
  const std::uint32_t fills = flows_into(terms, actions, first, second);
  if (fills == kNone && !copies_beside(terms, actions, first, second)) return false;
  if (fills != kNone) {
    for (BoundAction& one : actions_of(actions, second)) {
      if (one.sends()) one.behind = fills;
    }
  }
  first.count += second.count;
  first.position = second.position;
  return true;
}

void finish(const BoundTerms& terms, Actions actions, BoundRound& round) {
  ride_sends(terms, actions, round);
  put_in_order(actions, round);
}

}  // namespace farandole
