// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <variant>
#include <vector>

#include "farandole/result.hpp"
#include "farandole/types.hpp"
#include "schedule/expr.hpp"

// A collective is data. A Schedule says, for every rank at once, which spans move in which
// round; rounds that repeat are loops, so that a ring over 27,600 ranks is a few lines.
// The verifier proves it, the engine runs it, the explainer draws it, the simulator times it.
//
// Buffers
//   in       the caller's input. Read only.
//   out      the caller's output. May be the same memory as `in` (see below).
//   scratch  library memory: `scratch_slots` slots, each as long as the largest chunk.
// Chunks    by collective, n = elements per rank in the caller's terms:
//             allreduce, reduce, broadcast
//                                    in and out: chunk_count chunks that share n elements
//             reducescatter, scatter in: p chunks of n elements; out: 1 chunk
//             allgather, gather      in: 1 chunk of n elements; out: p chunks
//             alltoall               in and out: p chunks of n elements; in[d] is for rank d
//             barrier                none
//           broadcast and scatter read `in` at the root only. reduce and gather promise `out` at
//           the root only; elsewhere reduce may write to its `out`, and gather has none.
// In place  allreduce, reduce, broadcast: in = out. reducescatter, and scatter at the root:
//           out = chunk r of in. allgather, and gather at the root: in = chunk r of out. alltoall:
//           never. Every schedule must be correct both in place and apart.
// Positions A schedule is written for positions 0 to p - 1. `order` gives the rank at each
//           position; without it, rank r is at position r. Where chunks belong to ranks (all but
//           allreduce, reduce, broadcast, barrier) there is no order. `r`, peers and root are
//           positions.
//
// Rounds    A rank enters round k + 1 when all its actions of round k are finished. Within a round
//           its actions run concurrently, so no action may write what another one reads or writes,
//           with one exception: `after_previous` runs an action after the one before it. Actions
//           joined in this way are a chain; when a guard drops one, the others stay joined. A send
//           is finished when its span may be overwritten.
// Matching  The i-th send from a to b on a lane matches the i-th receive at b from a on that lane.
namespace farandole {

enum class Buffer : std::uint8_t { kIn, kOut, kScratch };

/// `count` consecutive chunks (or slots of scratch) from `first` on. A span of scratch holds as
/// many elements as the data chunks [shape, shape + count) do; elsewhere shape equals first.
struct Span {
  Buffer buffer = Buffer::kIn;
  Expr first;
  Expr count = 1;
  Expr shape;
  bool operator==(const Span&) const = default;
};

/// low <= value < high.
struct Guard {
  Expr value, low, high;
  bool operator==(const Guard&) const = default;
};

struct Action {
  enum class Kind : std::uint8_t { kSend, kReceive, kLocal };
  Kind kind = Kind::kSend;
  std::vector<Guard> when;      // this rank takes part only if all hold
  int lane = 0;                 // kSend, kReceive; at most one of each per round and lane
  Expr peer;                    // kSend, kReceive: a position
  std::optional<Span> source;   // kSend, kLocal: what is read. None: a zero-byte message.
  std::optional<Span> target;   // kReceive, kLocal: what is written. None: zero bytes.
  std::optional<Span> operand;  // set: target = operand (+) incoming, element by element
  bool incoming_first = false;  // kReceive: target = incoming (+) operand
  bool after_previous = false;
  bool operator==(const Action&) const = default;
};

struct Round {
  std::vector<Action> actions;
  std::int32_t stage = 0;  // index in Schedule::stages, if there are any
  bool operator==(const Round&) const = default;
};

/// A part that a library would do in one call: a layer's reduce-scatter, or a whole ring. Only a
/// simulation reads it: for the time that it adds where a rank begins a stage, and for the measured
/// rates of rings.
struct Stage {
  std::string name;
  std::int64_t ring_size = 0;    // ranks that pass messages around; 0: not a ring
  std::int64_t ring_stride = 1;  // positions from one of them to the next
  bool operator==(const Stage&) const = default;
};

/// A claim for the proof: turning one digit of all positions changes nothing. Position x has the
/// digit x / rank_stride % size; its successor is the position whose digit is one higher (modulo
/// size). The successor does what x does, with chunk indices of `in`, `out` and shapes turned in
/// the same way at chunk_stride, and slots of scratch at scratch_stride (0: not turned). verify()
/// checks the claim and runs the schedule at one position per orbit; a claim that does not hold
/// costs only time.
struct Rotation {
  std::int64_t size = 1, rank_stride = 1, chunk_stride = 0, scratch_stride = 0;
  bool operator==(const Rotation&) const = default;
};

struct Loop;
using Item = std::variant<Round, std::shared_ptr<const Loop>>;
struct Loop {
  std::int64_t count = 0;
  std::vector<Item> body;
};

struct Schedule {
  Collective collective = Collective::kAllreduce;
  std::string algorithm;
  std::int64_t rank_count = 1;
  std::int64_t root = 0;  // a position; collectives with a root
  std::int64_t chunk_count = 1;
  std::int64_t scratch_slots = 0;
  int lane_count = 1;
  std::vector<std::int32_t> order;  // [rank_count] or empty: the rank at each position
  std::vector<Rotation> rotations;
  std::vector<Stage> stages;  // in the order of their rounds; empty: all rounds are one
  std::vector<Item> items;
};

/// The number of chunks of `in` (or `out`), as in the table above.
std::int64_t chunks_of(const Schedule& schedule, Buffer buffer);

/// Whether chunks may differ in length: those that share n elements may, those of n elements each
/// do not.
bool chunks_differ_in_length(const Schedule& schedule);

/// What a proof covered.
struct Proof {
  std::int64_t rounds = 0;      // with actions, at the rank that has most
  std::int64_t transfers = 0;   // messages over all ranks
  std::int64_t reductions = 0;  // actions with an operand over all ranks
  /// The schedule's actions whose result is reduced from all ranks' inputs, on every rank and each
  /// time they run. Empty if there is an action of which this is true only sometimes. So every
  /// promised result was made by exactly one of these actions.
  std::unordered_set<const Action*> completing;
};

/// A schedule that verify() has proved; nothing else can make one.
///
/// Threads   immutable; share freely.
class VerifiedSchedule {
 public:
  const Schedule& schedule() const { return *schedule_; }
  const Proof& proof() const { return proof_; }

 private:
  friend Result<VerifiedSchedule> verify(Schedule schedule);
  VerifiedSchedule(std::shared_ptr<const Schedule> schedule, Proof proof)
      : schedule_(std::move(schedule)), proof_(proof) {}
  std::shared_ptr<const Schedule> schedule_;
  Proof proof_;
};

/// Proves, with `in` and `out` apart and in place: every rank ends with what the collective
/// promises, each contribution counted once; the same expression tree on every rank, so results are
/// bitwise equal; no deadlock even when every send waits for its receive; no message left over;
/// matching spans equally long; no two actions of a round in conflict; indices in range. Ranks that
/// the schedule's rotations take into each other are proved as one (induction over the ranks;
/// docs/design/0006), so that a ring over 27,600 ranks takes well under a second.
///
/// Errors    kInternal, with rank, round and reason, when the proof fails. kUnsupported for more
///           than 2^24 ranks, or if more than 2^28 steps or 2^26 writes of runs remain.
Result<VerifiedSchedule> verify(Schedule schedule);

}  // namespace farandole
