// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/deterministic.hpp"

#include <string>

#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

enum class Family : std::uint8_t { kRing, kDoubling, kDirect, kSmall };

// Which ranks communicate once the sums are there; kSmall: the message is not cut into chunks.
Family family_of(const AlgorithmInfo& algorithm) {
  const std::string_view name = algorithm.name;
  if (name == "direct") return Family::kDirect;
  if (name == "rabenseifner") return Family::kDoubling;
  const bool reduce = algorithm.collective == Collective::kReduce;
  const bool whole = name == "recursive_doubling" || name == "reduce_broadcast" ||
                     (reduce && (name == "chain" || name == "binomial" || name == "knomial"));
  return whole ? Family::kSmall : Family::kRing;
}

// Every rank gets the inputs of its own chunk, rank i's in slot i.
void exchange(ScheduleBuilder& b, std::int64_t p, bool at_once) {
  const Expr r = b.rank();
  RoundBuilder first = b.round();
  first.copy(scratch(r, r), in(r));
  if (at_once) {
    for (int i = 1; i < p; ++i) {
      const Expr to = (r + i) % p, from = (r - i) % p;
      first.lane(i - 1).send(in(to), to).receive(scratch(from, r), from);
    }
    return;
  }
  b.loop(p - 1, [&](const Expr& s) {
    const Expr to = (r + s + 1) % p, from = (r - s - 1) % p;
    b.round().send(in(to), to).receive(scratch(from, r), from);
  });
}

// Every rank gets all inputs of the only chunk, rank i's in slot i.
void gather_inputs(ScheduleBuilder& b, std::int64_t p) {
  const Expr r = b.rank();
  b.round().copy(scratch(r, 0), in(0));
  b.loop(p - 1, [&](const Expr& s) {
    const Expr from = (r - s - 1) % p;
    b.round().send(in(0), (r + s + 1) % p).receive(scratch(from, 0), from);
  });
}

// target = ((slot 0 + slot 1) + slot 2) + ..., in slots that have the shape of one data chunk.
void sum_slots(ScheduleBuilder& b, std::int64_t p, const Span& target, const Expr& shape) {
  b.round().reduce(target, scratch(0, shape), scratch(1, shape));
  b.loop(p - 2, [&](const Expr& s) { b.round().reduce(target, target, scratch(s + 2, shape)); });
}

void gather_in_ring(ScheduleBuilder& b, std::int64_t p) {
  const Expr r = b.rank();
  b.loop(p - 1, [&](const Expr& s) {
    b.round().send(out((r - s) % p), (r + 1) % p).receive(out((r - s - 1) % p), (r - 1) % p);
  });
}

void gather_directly(ScheduleBuilder& b, std::int64_t p) {
  const Expr r = b.rank();
  RoundBuilder round = b.round();
  for (int i = 1; i < p; ++i) {
    const Expr from = (r - i) % p;
    round.lane(i - 1).send(out(r), (r + i) % p).receive(out(from), from);
  }
}

// A rank that has d chunks, starting at its own, gets the next d from the rank d above. If these
// continue at chunk 0 after the last, that part is a message of its own, on lane 1.
void gather_doubling(ScheduleBuilder& b, std::int64_t p) {
  const Expr r = b.rank();
  for (std::int64_t d = 1; d < p; d *= 2) {
    const std::int64_t count = std::min(d, p - d);
    const Expr from = (r + d) % p, to = (r - d) % p;
    RoundBuilder round = b.round();
    round.send(out(r, min(count, p - r)), to).receive(out(from, min(count, p - from)), from);
    round.lane(1).when(r, p - count + 1, p).send(out(0, r + count - p), to);
    round.always().when(from, p - count + 1, p).receive(out(0, from + count - p), from);
  }
}

void gather_at_root(ScheduleBuilder& b, std::int64_t p, std::int64_t root) {
  const Expr r = b.rank(), v = (r - root) % p;
  b.round().when(v, 1, p).send(out(r), root);
  b.loop(p - 1, [&](const Expr& s) {
    const Expr from = (r + s + 1) % p;
    b.round().when(v, 0, 1).receive(out(from), from);
  });
}

// The sum grows from rank 0 to the last one, piece by piece: incoming (+) own keeps the order.
void sum_down_chain(ScheduleBuilder& b, std::int64_t p, std::int64_t pieces) {
  const Expr r = b.rank();
  const auto enter = [&](RoundBuilder& round, const Expr& piece) {
    round.always().when(r, 0, 1).send(in(piece), r + 1);
    round.always().when(r, 1, p).receive_reduce_first(out(piece), in(piece), r - 1);
  };
  const auto pass_on = [&](RoundBuilder& round, const Expr& piece) {
    round.always().when(r, 1, p - 1).send(out(piece), r + 1);
  };
  RoundBuilder first = b.round();
  enter(first, 0);
  b.loop(pieces - 1, [&](const Expr& s) {
    RoundBuilder round = b.round();
    enter(round, s + 1);
    pass_on(round, s);
  });
  RoundBuilder last = b.round();
  pass_on(last, pieces - 1);
}

// Passes the sum on from the last rank around the ring.
void pass_around(ScheduleBuilder& b, std::int64_t p, std::int64_t pieces) {
  const Expr r = b.rank(), v = (r + 1) % p, right = (r + 1) % p, left = (r - 1) % p;
  const auto enter = [&](RoundBuilder& round, const Expr& piece) {
    round.always().when(v, 0, 1).send(out(piece), right);
    round.always().when(v, 1, p).receive(out(piece), left);
  };
  const auto pass_on = [&](RoundBuilder& round, const Expr& piece) {
    round.always().when(v, 1, p - 1).send(out(piece), right);
  };
  RoundBuilder first = b.round();
  enter(first, 0);
  b.loop(pieces - 1, [&](const Expr& s) {
    RoundBuilder round = b.round();
    enter(round, s + 1);
    pass_on(round, s);
  });
  RoundBuilder last = b.round();
  pass_on(last, pieces - 1);
}

Schedule along_chain(const AlgorithmInfo& algorithm, std::int64_t p, std::int64_t root) {
  constexpr std::int64_t kPieces = 16;
  ScheduleBuilder b(algorithm.collective, std::string(algorithm.name), p, kPieces);
  b.root(root);
  sum_down_chain(b, p, kPieces);
  if (algorithm.collective == Collective::kAllreduce) {
    pass_around(b, p, kPieces);
  } else if (root != p - 1) {
    const Expr r = b.rank();
    RoundBuilder round = b.round();
    round.when(r, p - 1, p).send(out(0, kPieces), root);
    round.always().when(r, root, root + 1).receive(out(0, kPieces), p - 1);
  }
  return std::move(b).build();
}

void gather(ScheduleBuilder& b, std::int64_t p, Family family) {
  if (family == Family::kDirect) return gather_directly(b, p);
  if (family == Family::kDoubling) return gather_doubling(b, p);
  gather_in_ring(b, p);
}

}  // namespace

Schedule build_deterministic(const AlgorithmInfo& algorithm, std::int64_t rank_count,
                             std::int64_t root) {
  const std::int64_t p = rank_count;
  const Family family = family_of(algorithm);
  if (algorithm.name == kAllreduceOneShot.name) return algorithm.build({.rank_count = p});
  if (p > kExchangeRanksMax) return along_chain(algorithm, p, root);
  const bool reduce = algorithm.collective == Collective::kReduce;
  if (reduce && (family == Family::kSmall || family == Family::kDirect)) {
    Schedule schedule = kReduceDirect.build({.rank_count = p, .root = root});
    schedule.algorithm = algorithm.name;
    return schedule;
  }
  const bool whole = family == Family::kSmall;
  ScheduleBuilder b(algorithm.collective, std::string(algorithm.name), p, whole ? 1 : p);
  if (reduce) b.root(root);
  if (p == 1) {
    b.round().copy(out(0), in(0));
    return std::move(b).build();
  }
  b.scratch_slots(p);
  const Expr r = b.rank();
  if (whole) {
    gather_inputs(b, p);
    sum_slots(b, p, out(0), 0);
    return std::move(b).build();
  }
  exchange(b, p, family == Family::kDirect);
  sum_slots(b, p, algorithm.collective == Collective::kReducescatter ? out(0) : out(r), r);
  if (reduce) gather_at_root(b, p, root);
  if (algorithm.collective == Collective::kAllreduce) gather(b, p, family);
  return std::move(b).build();
}

}  // namespace farandole
