// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "schedule/expand.hpp"
#include "schedule/symbolic.hpp"

namespace farandole {
namespace {

using Reason = std::optional<std::string>;

Reason header_fault(const Expanded& expanded) {
  const Schedule& header = expanded.header;
  if (header.rank_count < 1 ||
      expanded.ranks.size() != static_cast<std::size_t>(header.rank_count)) {
    return "steps for " + std::to_string(expanded.ranks.size()) + " ranks";
  }
  const bool shared = header.collective == Collective::kAllreduce ||
                      header.collective == Collective::kReduce ||
                      header.collective == Collective::kBroadcast;
  const bool one_each = !shared && header.collective != Collective::kBarrier;
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
  return std::nullopt;
}

// What can be said of a round without running it: fields, ranges, lanes and conflicts.
class StructureCheck {
 public:
  StructureCheck(const Schedule& header, Aliasing aliasing)
      : header_(header),
        map_(header, aliasing),
        uses_(map_.per_rank()),
        lanes_(2 * static_cast<std::size_t>(header.lane_count)) {}

  Reason fault(std::int64_t rank, const ConcreteRound& round) {
    ++stamp_;
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
      // The shape of scratch names data chunks; elsewhere it names the span's own.
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

  Reason conflict(std::int64_t rank, const ConcreteAction& action) {
    for (const auto* span : {&action.source, &action.operand}) {
      if (!*span) continue;
      const std::size_t start = map_.of(rank, (*span)->buffer, (*span)->first);
      if (action.target && shifted_overlap(rank, start, **span, *action.target)) {
        return "reads " + text(**span) + " while writing a shifted " + text(*action.target);
      }
      for (std::size_t i = 0; i < static_cast<std::size_t>((*span)->count); ++i) {
        if (!may_read(use_of(start + i))) return "reads " + text(**span) + ", written in parallel";
      }
    }
    if (!action.target) return std::nullopt;
    const std::size_t start = map_.of(rank, action.target->buffer, action.target->first);
    for (std::size_t i = 0; i < static_cast<std::size_t>(action.target->count); ++i) {
      if (!may_write(use_of(start + i))) {
        return "writes " + text(*action.target) + ", used in parallel";
      }
    }
    return std::nullopt;
  }

  bool shifted_overlap(std::int64_t rank, std::size_t start, const ConcreteSpan& read,
                       const ConcreteSpan& written) const {
    const std::size_t other = map_.of(rank, written.buffer, written.first);
    return start != other && start < other + static_cast<std::size_t>(written.count) &&
           other < start + static_cast<std::size_t>(read.count);
  }

  // Which chains of this round have touched a cell. Only actions of one chain are ordered.
  struct Use {
    std::uint64_t stamp = 0;
    std::optional<std::size_t> writer, reader;
    bool several_readers = false;
  };

  Use& use_of(std::size_t cell) {
    Use& use = uses_[cell];
    if (use.stamp != stamp_) use = Use{stamp_, std::nullopt, std::nullopt, false};
    return use;
  }

  bool may_read(Use& use) const {
    use.several_readers = use.several_readers || (use.reader && *use.reader != chain_);
    use.reader = chain_;
    return !use.writer || *use.writer == chain_;
  }

  bool may_write(Use& use) const {
    if (use.several_readers || (use.reader && *use.reader != chain_)) return false;
    if (use.writer && *use.writer != chain_) return false;
    use.writer = chain_;
    return true;
  }

  const Schedule& header_;
  const CellMap map_;
  std::vector<Use> uses_;             // [cell]
  std::vector<std::uint64_t> lanes_;  // [lane, receive or send]: stamp of the last round
  std::uint64_t stamp_ = 0;           // of this round
  std::size_t chain_ = 0;             // first action of the chain at hand
};

Result<void> check_structure(const Expanded& expanded, Aliasing aliasing) {
  StructureCheck structure(expanded.header, aliasing);
  for (std::size_t rank = 0; rank < expanded.ranks.size(); ++rank) {
    for (std::size_t round = 0; round < expanded.ranks[rank].size(); ++round) {
      const auto at = static_cast<std::int64_t>(rank);
      if (Reason reason = structure.fault(at, expanded.ranks[rank][round])) {
        return violation(expanded.header, aliasing, at, round, *reason);
      }
    }
  }
  return {};
}

}  // namespace

Result<Proof> check(const Expanded& expanded) {
  if (Reason reason = header_fault(expanded)) {
    return Error{ErrorKind::kInternal, "schedule " + expanded.header.algorithm + " over " +
                                           std::to_string(expanded.header.rank_count) +
                                           " ranks has " + *reason};
  }
  Proof proof;
  for (const Aliasing aliasing : {Aliasing::kApart, Aliasing::kInPlace}) {
    if (aliasing == Aliasing::kInPlace && expanded.header.collective == Collective::kAlltoall)
      break;
    if (Result<void> sound = check_structure(expanded, aliasing); !sound) return sound.error();
    Result<Proof> executed = execute_symbolically(expanded, aliasing);
    if (!executed) return executed;
    proof = *executed;
  }
  return proof;
}

}  // namespace farandole
