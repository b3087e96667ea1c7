// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/rank_set.hpp"
#include "farandole/types.hpp"

/// Agreement on one order of operations among ranks that ask for them in different orders.
/// Sources: [Sergeev18] (Horovod), [Romero22] §4 (response cache, grouping), [Kurth18] §V (tree).
namespace farandole::coordinator {

/// What one rank asks for: a named tensor, and what is to be done with it. Immutable and shared:
/// in a simulation of many ranks they all hold the same one.
struct TensorRequest {
  std::string name;  // unique among the requests of a rank that are not done
  Collective collective = Collective::kAllreduce;  // allreduce, broadcast, reducescatter,
                                                   // allgather, alltoall or barrier
  Reduction reduction = Reduction::kSum;           // of those that reduce; not kPremultipliedSum
  bool adasum = false;                             // allreduce by adaptive summation instead
  DType dtype = DType::kUInt8;
  std::vector<std::int64_t> shape;
  std::int32_t root = 0;           // of a broadcast
  double prescale = 1.0;           // of those that reduce: what every input is multiplied by
  double postscale = 1.0;          // and the result
  bool leaves_out_joined = false;  // an average is over the ranks that have not joined
  std::int32_t device = -1;        // -1: host memory; other numbers may differ between ranks
  std::string group;               // the same for all that run together; empty: alone
  std::uint32_t group_size = 1;

  bool operator==(const TensorRequest&) const = default;
};
using SharedRequest = std::shared_ptr<const TensorRequest>;

bool same_scaling(const TensorRequest& a, const TensorRequest& b);

/// Whether requests of two ranks for one name are for the same operation. In an allgather and an
/// alltoall each rank may have its own first dimension: the data plane exchanges it.
bool agree(const TensorRequest& a, const TensorRequest& b);

/// "allreduce sum float32[2, 3]", with root, group, factors and device where they matter.
std::string describe(const TensorRequest& request, const RankNames& names = {});

}  // namespace farandole::coordinator
