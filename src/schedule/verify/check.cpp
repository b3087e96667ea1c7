// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "schedule/expand.hpp"
#include "schedule/verify/symbolic.hpp"

namespace farandole {
namespace {

using Reason = std::optional<std::string>;

// An order is allowed only where the promise names no ranks.
Reason order_fault(const Schedule& header) {
  if (header.order.empty()) return std::nullopt;
  if (!chunks_differ_in_length(header) && header.collective != Collective::kBarrier) {
    return "an order of ranks, although its chunks belong to ranks";
  }
  if (header.order.size() != static_cast<std::size_t>(header.rank_count)) {
    return "an order of " + std::to_string(header.order.size()) + " ranks";
  }
  std::vector<bool> seen(header.order.size());
  for (const std::int32_t rank : header.order) {
    if (rank < 0 || rank >= header.rank_count || seen[static_cast<std::size_t>(rank)]) {
      return "rank " + std::to_string(rank) + " in its order, outside or a second time";
    }
    seen[static_cast<std::size_t>(rank)] = true;
  }
  return std::nullopt;
}

Reason header_fault(const Schedule& header) {
  if (header.rank_count < 1) return "no ranks";
  const bool one_each =
      !chunks_differ_in_length(header) && header.collective != Collective::kBarrier;
  if (header.chunk_count < 0 || (one_each && header.chunk_count != header.rank_count)) {
    return std::to_string(header.chunk_count) + " chunks";
  }
  if (header.root < 0 || header.root >= header.rank_count) {
    return "root " + std::to_string(header.root);
  }
  if (header.scratch_slots < 0 || header.lane_count < 1) {
    return std::to_string(header.scratch_slots) + " scratch slots and " +
           std::to_string(header.lane_count) + " lanes";
  }
  return order_fault(header);
}

// Checks a round without running it: fields, ranges, lanes and conflicts.
class StructureCheck {
 public:
  StructureCheck(const Schedule& header, Aliasing aliasing)
      : header_(header),
        map_(header, aliasing),
        lanes_(2 * static_cast<std::size_t>(header.lane_count)) {}

  Reason fault(std::int64_t rank, const ConcreteRound& round) {
    ++stamp_;
    uses_.clear();
    for (std::size_t i = 0; i < round.size(); ++i) {
      const ConcreteAction& action = round[i];
      if (action.after_previous && i == 0) return "the first action follows no other";
      if (!action.after_previous) chain_ = i;
      for (auto check : {&StructureCheck::form_fault, &StructureCheck::range_fault,
                         &StructureCheck::message_fault, &StructureCheck::conflict}) {
        if (Reason reason = (this->*check)(rank, action)) {
          return "action " + std::to_string(i) + " " + *reason;
        }
      }
    }
    return std::nullopt;
  }

 private:
  Reason form_fault(std::int64_t, const ConcreteAction& action) {
    const bool sends = action.kind == Action::Kind::kSend;
    const bool receives = action.kind == Action::Kind::kReceive;
    const bool local = action.kind == Action::Kind::kLocal;
    if ((sends && action.target) || (receives && action.source)) return "has a span too many";
    if (local && (!action.source || !action.target)) return "lacks a source or a target";
    if (action.operand && !action.target) return "has an operand but no target";
    if (action.operand && !reduces(header_.collective)) return "reduces what is only to be moved";
    if (action.incoming_first && (local || !action.operand)) return "puts nothing incoming first";
    if (local && (action.lane != 0 || action.peer != 0)) return "is local but names a peer";
    if (action.target && action.target->buffer == Buffer::kIn) {
      return "writes " + text(*action.target);
    }
    return std::nullopt;
  }

  Reason range_fault(std::int64_t rank, const ConcreteAction& action) {
    for (const auto* span : {&action.source, &action.target, &action.operand}) {
      if (!*span) continue;
      const ConcreteSpan& at = **span;
      const bool none = at.buffer == Buffer::kOut && header_.collective == Collective::kGather &&
                        rank != header_.root;
      const std::int64_t chunks = none ? 0 : chunks_of(header_, at.buffer);
      const bool inside =
          at.count >= 1 && at.first >= 0 && at.first < chunks && at.count <= chunks - at.first;
      // The shape of a span of scratch names data chunks; elsewhere it is the span itself.
      const bool shaped = at.buffer == Buffer::kScratch
                              ? at.shape >= 0 && at.shape < header_.chunk_count &&
                                    at.count <= header_.chunk_count - at.shape
                              : at.shape == at.first;
      if (!inside) {
        return "uses " + text(at) + ", outside its " + std::to_string(chunks) + " chunks";
      }
      if (!shaped) return "uses " + text(at) + ", whose shape is not that of its data";
    }
    return std::nullopt;
  }

  Reason message_fault(std::int64_t rank, const ConcreteAction& action) {
    if (action.kind == Action::Kind::kLocal) return std::nullopt;
    if (action.peer < 0 || action.peer >= header_.rank_count || action.peer == rank) {
      return "has peer " + std::to_string(action.peer);
    }
    if (action.lane < 0 || action.lane >= header_.lane_count) {
      return "uses lane " + std::to_string(action.lane) + " of " +
             std::to_string(header_.lane_count);
    }
    const bool sends = action.kind == Action::Kind::kSend;
    std::uint64_t& last = lanes_[2 * static_cast<std::size_t>(action.lane) + sends];
    if (last == stamp_) {
      return std::string("is the second ") + (sends ? "send" : "receive") + " on lane " +
             std::to_string(action.lane);
    }
    last = stamp_;
    return std::nullopt;
  }

  // Cells that an action of this round touches. Only actions of one chain are ordered.
  struct Use {
    std::int64_t first, end;
    std::size_t chain;
    bool writes;
  };

  Use use_of(std::int64_t rank, const ConcreteSpan& span, bool writes) const {
    const std::int64_t first = map_.of(rank, span.buffer, span.first);
    return {first, first + span.count, chain_, writes};
  }

  Reason conflict(std::int64_t rank, const ConcreteAction& action) {
    for (const auto* span : {&action.source, &action.operand}) {
      if (!*span) continue;
      const Use use = use_of(rank, **span, false);
      if (action.target) {
        const Use written = use_of(rank, *action.target, true);
        if (use.first != written.first && use.first < written.end && written.first < use.end) {
          return "reads " + text(**span) + " while writing a shifted " + text(*action.target);
        }
      }
      if (clashes(use)) return "reads " + text(**span) + ", written in parallel";
      uses_.push_back(use);
    }
    if (!action.target) return std::nullopt;
    const Use use = use_of(rank, *action.target, true);
    if (clashes(use)) return "writes " + text(*action.target) + ", used in parallel";
    uses_.push_back(use);
    return std::nullopt;
  }

  bool clashes(const Use& use) const {
    return std::any_of(uses_.begin(), uses_.end(), [&use](const Use& other) {
      return (use.writes || other.writes) && use.chain != other.chain && use.first < other.end &&
             other.first < use.end;
    });
  }

  const Schedule& header_;
  const CellMap map_;
  std::vector<Use> uses_;             // of the actions so far
  std::vector<std::uint64_t> lanes_;  // [lane, receive or send]: stamp of the last round
  std::uint64_t stamp_ = 0;           // of this round
  std::size_t chain_ = 0;             // first action of the current chain
};

}  // namespace

Result<void> check_header(const Schedule& header) {
  Reason reason = header_fault(header);
  if (!reason) return {};
  return Error{ErrorKind::kInternal, "schedule " + header.algorithm + " over " +
                                         std::to_string(header.rank_count) + " ranks has " +
                                         *reason};
}

Result<void> check_structure(const Schedule& header, const Symmetry& symmetry,
                             const StepsOf& steps_of, Aliasing aliasing) {
  StructureCheck structure(header, aliasing);
  ConcreteRound round;
  for (std::int64_t orbit = 0; orbit < symmetry.orbit_count(); ++orbit) {
    const std::int64_t rank = symmetry.representative(orbit);
    Steps steps = steps_of(orbit);
    for (std::size_t index = 0; steps.next(round); ++index) {
      if (Reason reason = structure.fault(rank, round)) {
        return violation(header, aliasing, rank, index, *reason);
      }
    }
  }
  return {};
}

Result<Proof> check(const Schedule& header, const StepsOf& steps_of) {
  const Symmetry symmetry(header);
  Proof proof;
  for (const Aliasing aliasing : {Aliasing::kApart, Aliasing::kInPlace}) {
    if (aliasing == Aliasing::kInPlace && header.collective == Collective::kAlltoall) break;
    if (auto sound = check_structure(header, symmetry, steps_of, aliasing); !sound) {
      return sound.error();
    }
    Result<Proof> executed = execute_symbolically(header, symmetry, steps_of, aliasing);
    if (!executed) return executed;
    const bool differ = aliasing == Aliasing::kInPlace && proof.completing != executed->completing;
    proof = *std::move(executed);
    if (differ) proof.completing.clear();
  }
  return proof;
}

Result<Proof> check(const Expanded& expanded) {
  if (auto sound = check_header(expanded.header); !sound) return sound.error();
  if (expanded.ranks.size() != static_cast<std::size_t>(expanded.header.rank_count)) {
    return Error{ErrorKind::kInternal, "schedule " + expanded.header.algorithm + " over " +
                                           std::to_string(expanded.header.rank_count) +
                                           " ranks has steps for " +
                                           std::to_string(expanded.ranks.size()) + " ranks"};
  }
  return check(expanded.header, [&expanded](std::int64_t orbit) {
    return Steps(expanded.ranks[static_cast<std::size_t>(orbit)]);
  });
}

}  // namespace farandole
