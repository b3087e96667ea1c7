// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/positions.hpp"
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"

namespace farandole {
namespace {

constexpr std::int64_t kDefaultPieces = 8;

// Chain broadcast: the message passes from rank to rank, in pieces if pipelined; a rank passes on a
// piece while it receives the next. With `order` the chain goes through the ranks in that order,
// starting at the root and wrapping around; planner/chain_order.hpp finds an order in which the
// hops share no link.
//
//   chunks   1; pipelined, as the option says, 8 by default
//   rounds   chunks + 1 per rank; in the first, a rank waits for those before it in the chain
//   sent     the bytes once, per rank
//   scratch  none; works in place
//   needs    rank_count >= 1; any transport
//   source   [Xin20] eq. 2 and 5, [Awan18]
Schedule chain(const char* name, std::int64_t pieces, const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count, root = root_position(parameters);
  ScheduleBuilder b(Collective::kBroadcast, name, p, pieces);
  b.root(root);
  b.order(parameters.order);
  if (p == 1) {
    b.round().copy(out(0, pieces), in(0, pieces));
    return std::move(b).build();
  }
  const Expr r = b.rank(), v = (r - root) % p, left = (r - 1) % p, right = (r + 1) % p;
  const auto enter = [&](RoundBuilder& round, const Expr& piece) -> RoundBuilder& {
    // The copy follows the send, since in place it would write what is being sent.
    round.when(v, 0, 1).send(in(piece), right).then().copy(out(piece), in(piece));
    return round.always().when(v, 1, p).receive(out(piece), left);
  };
  const auto pass_on = [&](RoundBuilder& round, const Expr& piece) {
    round.always().when(v, 1, p - 1).send(out(piece), right);
  };
  RoundBuilder first = b.round();
  enter(first, 0);
  b.loop(pieces - 1, [&](const Expr& s) {
    RoundBuilder round = b.round();
    pass_on(enter(round, s + 1), s);
  });
  RoundBuilder last = b.round();
  pass_on(last, pieces - 1);
  return std::move(b).build();
}

Schedule chain_broadcast(const AlgorithmParameters& parameters) {
  return chain("chain", 1, parameters);
}

Schedule pipelined_chain_broadcast(const AlgorithmParameters& parameters) {
  return chain("pipelined_chain", parameters.chunks > 0 ? parameters.chunks : kDefaultPieces,
               parameters);
}

}  // namespace

constinit const AlgorithmInfo kBroadcastChain = {Collective::kBroadcast,
                                                 "chain",
                                                 "the whole message from rank to rank",
                                                 "(p-1)(a + nb)",
                                                 "[Xin20]",
                                                 "rank_count >= 1",
                                                 "",
                                                 kRanksMax,
                                                 &chain_broadcast};

constinit const AlgorithmInfo kBroadcastPipelinedChain = {
    Collective::kBroadcast,
    "pipelined_chain",
    "pieces of c bytes from rank to rank; best for large messages",
    "(n/c + p-2)(a + cb)",
    "[Xin20], [Awan18]",
    "rank_count >= 1",
    "chunks order",
    kRanksMax,
    &pipelined_chain_broadcast};

}  // namespace farandole
