// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

// How an algorithm file is written:
//
//   ScheduleBuilder b(Collective::kAllreduce, "ring", p, /*chunk_count=*/p);
//   const Expr r = b.rank();
//   b.loop(p - 1, [&](Expr s) {
//     b.round()
//         .send(out((r - s) % p), (r + 1) % p)
//         .receive_reduce(out((r - s - 1) % p), in((r - s - 1) % p), (r - 1) % p);
//   });
//   return std::move(b).build();
namespace farandole {

Span in(Expr first, Expr count = 1);
Span out(Expr first, Expr count = 1);
/// `count` slots of scratch that hold as many elements as the data chunks from `shape` on.
Span scratch(Expr slot, Expr shape, Expr count = 1);

/// Adds actions to one round. Calls chain; when() and lane() hold for the actions that follow.
class RoundBuilder {
 public:
  RoundBuilder& when(Expr value, Expr low, Expr high);  // adds a guard
  RoundBuilder& always();                               // drops all guards
  RoundBuilder& lane(int lane);
  RoundBuilder& send(Span source, Expr peer);
  RoundBuilder& receive(Span target, Expr peer);
  /// target = operand (+) incoming
  RoundBuilder& receive_reduce(Span target, Span operand, Expr peer);
  /// target = incoming (+) operand
  RoundBuilder& receive_reduce_first(Span target, Span operand, Expr peer);
  RoundBuilder& copy(Span target, Span source);
  /// target = operand (+) source
  RoundBuilder& reduce(Span target, Span operand, Span source);
  RoundBuilder& signal(Expr peer);  // zero-byte send
  RoundBuilder& await(Expr peer);   // zero-byte receive
  RoundBuilder& then();             // the next action runs after the one before it

 private:
  friend class ScheduleBuilder;
  RoundBuilder(Round& round, int& lane_count) : round_(round), lane_count_(lane_count) {}
  Action& add(Action::Kind kind);
  Round& round_;
  int& lane_count_;
  std::vector<Guard> when_;
  int lane_ = 0;
  bool then_ = false;
};

class ScheduleBuilder {
 public:
  ScheduleBuilder(Collective collective, std::string algorithm, std::int64_t rank_count,
                  std::int64_t chunk_count);
  Expr rank() const { return Expr::rank(); }
  void root(std::int64_t root);
  void scratch_slots(std::int64_t slots);
  void order(std::vector<std::int32_t> rank_at_position);
  /// Claims a symmetry, see Rotation.
  void rotation(Rotation claim);
  /// The rounds that follow belong to the stage of this name. Not within loops.
  void stage(const std::string& name, std::int64_t ring_size = 0, std::int64_t ring_stride = 1);
  /// A new round at the end of the innermost open loop. Use it before anything else is added.
  RoundBuilder round();
  /// `count` repetitions of what `body` adds; `body` receives the counter.
  void loop(std::int64_t count, const std::function<void(Expr)>& body);
  Schedule build() &&;

 private:
  Schedule schedule_;
  std::vector<std::vector<Item>*> open_;
};

}  // namespace farandole
