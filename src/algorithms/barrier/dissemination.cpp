// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/table.hpp"
#include "schedule/builder.hpp"
#include "schedule/passes/synchronize.hpp"

namespace farandole {
namespace {

// Dissemination barrier: in round k, each rank tells the rank 2^k further what it has heard.
//
//   chunks   none
//   rounds   ceil(lg p)
//   sent     ceil(lg p) messages of zero bytes, per rank
//   scratch  none
//   needs    rank_count >= 1; any transport
//   source   Hensgen, Finkel, Manber 1988
Schedule dissemination_barrier(const AlgorithmParameters& parameters) {
  const std::int64_t p = parameters.rank_count;
  ScheduleBuilder b(Collective::kBarrier, "dissemination", p, 0);
  b.rotation({p, 1, 0, 0});
  return synchronized(std::move(b).build());
}

}  // namespace

constinit const AlgorithmInfo kBarrierDissemination = {Collective::kBarrier,
                                                       "dissemination",
                                                       "signals over doubling distances",
                                                       "lg p a",
                                                       "Hensgen, Finkel, Manber 1988",
                                                       "rank_count >= 1",
                                                       "",
                                                       kRanksMax,
                                                       &dissemination_barrier};

}  // namespace farandole
