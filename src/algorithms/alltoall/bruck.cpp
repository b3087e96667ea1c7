// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

// Bruck's alltoall: a chunk for the rank j above travels the powers of two in j, all chunks with
// the same power in one message. Slot j of scratch first holds the chunk for the rank j above, then
// a chunk in transit, and last the chunk from the rank j below.
//
//   chunks   rank_count
//   rounds   ceil(lg p) with messages, and about 4 p local ones of one copy each
//   sent     about p / 2 chunks in each of ceil(lg p) messages, per rank
//   scratch  2 p slots: p, and p / 2 each to pack what is sent and what is received
//   needs    rank_count >= 1; never in place; any transport
//   source   Bruck, Ho, Kipnis, Upfal, Weathersby 1997; [Thakur05] §4.6
Schedule bruck_alltoall(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kAlltoall, "bruck", p, p);
  b.rotation({p, 1, 1, 0});
  const Expr r = b.rank();
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  const std::int64_t sent = p, received = p + p / 2;  // where packed slots begin
  b.scratch_slots(p + p / 2 * 2);
  // All chunks are equally long, so that every span may have the shape of the first ones.
  const auto slots = [](const Expr& first, std::int64_t count) { return scratch(first, 0, count); };
  b.loop(p, [&](const Expr& s) { b.round().copy(slots(s, 1), in((r + s) % p)); });
  for (std::int64_t d = 1; d < p; d *= 2) {
    // Slots with this bit set: runs of d, 2 d apart, of which the last may be shorter.
    const std::int64_t runs = p / (2 * d), tail = p % (2 * d) > d ? p % (2 * d) - d : 0;
    const auto each_run = [&](auto&& add) {
      b.loop(runs, [&](const Expr& s) { add(s * (2 * d) + d, s * d, d); });
      if (tail > 0) add(Expr(runs * 2 * d + d), Expr(runs * d), tail);
    };
    each_run([&](const Expr& slot, const Expr& packed, std::int64_t count) {
      b.round().copy(slots(packed + sent, count), slots(slot, count));
    });
    const std::int64_t count = runs * d + tail;
    b.round().send(slots(sent, count), (r + d) % p).receive(slots(received, count), (r - d) % p);
    each_run([&](const Expr& slot, const Expr& packed, std::int64_t each) {
      b.round().copy(slots(slot, each), slots(packed + received, each));
    });
  }
  b.loop(p, [&](const Expr& s) { b.round().copy(out((r - s) % p), slots(s, 1)); });
  return std::move(b).build();
}

}  // namespace

constinit const AlgorithmInfo kAlltoallBruck = {
    Collective::kAlltoall,
    "bruck",
    "messages of many chunks over doubling distances; best for small messages",
    "lg p (a + p/2 nb)",
    "Bruck et al. 1997",
    "rank_count >= 1",
    "",
    kRanksMax,
    &bruck_alltoall};

}  // namespace farandole
