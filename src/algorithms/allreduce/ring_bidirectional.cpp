// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Two rings at once: chunks [0, p) travel to the right on lane 0, chunks [p, 2p) to the left on
// lane 1, so that both directions of every link carry half the bytes.
//
//   chunks   2 rank_count
//   rounds   2 (rank_count - 1)
//   sent     2 (rank_count - 1) / rank_count of the bytes, per rank, half in each direction
//   scratch  none; works in place
//   needs    rank_count >= 1; any transport
//   source   [Patarasuk09], one ring per direction
Schedule bidirectional_ring_allreduce(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAllreduce, "ring_bidirectional", p, 2 * p);
  b.rotation({p, 1, 1, 0});
  if (p == 1) {
    b.round().copy(out(0, 2), in(0, 2));
    return std::move(b).build();
  }
  const Expr r = b.rank();
  const auto both_lanes = [&](auto&& add) {
    RoundBuilder round = b.round();
    for (const int lane : {0, 1}) {
      const std::int64_t step = lane == 0 ? 1 : -1;
      // Chunk that starts `back` ranks before this one, against the direction of travel.
      const auto chunk = [&, lane, step](const Expr& back) {
        return (r - back * step) % p + lane * p;
      };
      add(round.lane(lane), chunk, (r + step) % p, (r - step) % p);
    }
  };
  both_lanes([](RoundBuilder& round, const auto& chunk, const Expr& to, const Expr& from) {
    round.send(in(chunk(0)), to).receive_reduce(out(chunk(1)), in(chunk(1)), from);
  });
  b.loop(p - 2, [&](const Expr& s) {
    both_lanes([&](RoundBuilder& round, const auto& chunk, const Expr& to, const Expr& from) {
      const Expr next = chunk(s + 2);
      round.send(out(chunk(s + 1)), to).receive_reduce(out(next), in(next), from);
    });
  });
  b.loop(p - 1, [&](const Expr& s) {
    both_lanes([&](RoundBuilder& round, const auto& chunk, const Expr& to, const Expr& from) {
      round.send(out(chunk(s - 1)), to).receive(out(chunk(s)), from);
    });
  });
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAllreduceRingBidirectional = {
    Collective::kAllreduce,
    "ring_bidirectional",
    "two rings in opposite directions, half the bytes each",
    "2(p-1)a + (p-1)/p nb",
    "[Patarasuk09]",
    "rank_count >= 1",
    "",
    kRanksMax,
    &bidirectional_ring_allreduce};

}  // namespace farandole
