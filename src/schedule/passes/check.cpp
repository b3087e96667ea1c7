// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "schedule/passes/overlap.hpp"

namespace farandole {
namespace {

/// Proves one round. Indices are those of the bound program.
class RoundCheck {
 public:
  RoundCheck(const BoundTerms& terms, std::span<const BoundAction> actions, const BoundRound& round)
      : terms_(terms), actions_(actions), round_(round) {}

  Result<void> run() const {
    const std::uint32_t end = round_.first + round_.count;
    for (std::uint32_t later = round_.first; later < end; ++later) {
      if (!is_waited_for(later)) return refusal(later, later, "waits for what is not in its round");
      for (std::uint32_t earlier = round_.first; earlier < later; ++earlier) {
        if (runs_after(later, earlier) || !conflict(earlier, later)) continue;
        return refusal(earlier, later, "touch the same memory at once");
      }
    }
    return {};
  }

 private:
  bool contains(std::uint32_t index) const {
    return round_.first <= index && index < round_.first + round_.count;
  }

  /// Whether the actions that it names are in its round and of the required kind.
  bool is_waited_for(std::uint32_t index) const {
    const BoundAction& one = actions_[index];
    if (one.held && index == round_.first) return false;
    const bool follows = one.behind == BoundAction::kNone ||
                         (contains(one.behind) && one.behind < index &&
                          actions_[one.behind].receives() && actions_[one.behind].streams);
    const bool rides = one.rides == BoundAction::kNone ||
                       (contains(one.rides) && one.is_local() && actions_[one.rides].sends() &&
                        coincide(actions_[one.rides].source, one.source));
    return follows && rides && (one.behind == BoundAction::kNone || one.streams);
  }

  /// Whether `later` begins once all of `earlier` is done.
  bool runs_after(std::uint32_t later, std::uint32_t earlier) const {
    return actions_[later].held && ends_after(later - 1, earlier);
  }

  /// Whether `earlier` is done when `index` is.
  bool ends_after(std::uint32_t index, std::uint32_t earlier) const {
    if (index == earlier) return true;
    if (!contains(index)) return false;
    const BoundAction& one = actions_[index];
    return (one.held && ends_after(index - 1, earlier)) ||
           (one.behind != BoundAction::kNone && ends_after(one.behind, earlier));
  }

  /// Whether each piece of `later` comes after the same piece of `earlier`.
  bool follows(std::uint32_t later, std::uint32_t earlier) const {
    const std::uint32_t behind = actions_[later].behind;
    return behind != BoundAction::kNone && (behind == earlier || follows(behind, earlier));
  }

  /// Repeats what the passes compute, so that a mistake there is not also one in the proof.
  bool share(const ByteSpan& a, const ByteSpan& b) const {
    if (a.buffer != b.buffer) {
      const bool scratch = a.buffer == Buffer::kScratch || b.buffer == Buffer::kScratch;
      if (scratch || !terms_.in_offset) return false;
    }
    const auto end = [&](const ByteSpan& one) {
      return begin(one) + static_cast<std::int64_t>(one.bytes.value());
    };
    return std::max(begin(a), begin(b)) < std::min(end(a), end(b));
  }
  bool coincide(const ByteSpan& a, const ByteSpan& b) const {
    return share(a, b) && begin(a) == begin(b) && a.bytes == b.bytes;
  }
  std::int64_t begin(const ByteSpan& one) const {
    const auto offset = static_cast<std::int64_t>(one.offset);
    return one.buffer == Buffer::kIn && terms_.in_offset ? offset + *terms_.in_offset : offset;
  }
  bool is_idle(const BoundAction& one) const {
    return one.is_local() && !one.reduces() && coincide(one.source, one.target);
  }

  bool conflict(std::uint32_t earlier, std::uint32_t later) const {
    const BoundAction &a = actions_[earlier], &b = actions_[later];
    const bool pieces = follows(later, earlier);
    const auto meet = [&](const ByteSpan& written, const ByteSpan& used) {
      return share(written, used) && !(pieces && coincide(written, used));
    };
    const bool a_writes = !a.sends() && !is_idle(a);
    const bool b_writes = !b.sends() && !is_idle(b);
    if (a_writes && (meet(a.target, b.source) || meet(a.target, b.operand))) return true;
    if (a_writes && b_writes && meet(a.target, b.target)) return true;
    if (!b_writes) return false;
    return meet(b.target, a.operand) || (!is_answer(a, b) && meet(b.target, a.source));
  }

  /// In an allreduce, what the peer sends back into a place that this rank sends is made of what
  /// the peer got from that place: the peer has read each piece before it can answer with it.
  bool is_answer(const BoundAction& sent, const BoundAction& received) const {
    return terms_.collective == Collective::kAllreduce && sent.sends() && received.receives() &&
           sent.step < received.step && sent.peer == received.peer && received.streams &&
           coincide(sent.source, received.target);
  }

  Error refusal(std::uint32_t a, std::uint32_t b, const std::string& why) const {
    return Error{ErrorKind::kInternal, "actions " + std::to_string(a) + " and " +
                                           std::to_string(b) + " of a bound program " + why + "."};
  }

  const BoundTerms& terms_;
  std::span<const BoundAction> actions_;
  const BoundRound& round_;
};

}  // namespace

Result<void> check_overlaps(const BoundTerms& terms, std::span<const BoundAction> actions,
                            std::span<const BoundRound> rounds) {
  for (const BoundRound& round : rounds) {
    if (auto right = RoundCheck(terms, actions, round).run(); !right) return right;
  }
  return {};
}

}  // namespace farandole
