// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule.hpp"

namespace farandole {

std::int64_t chunks_of(const Schedule& schedule, Buffer buffer) {
  if (buffer == Buffer::kScratch) return schedule.scratch_slots;
  switch (schedule.collective) {
    case Collective::kReducescatter:
    case Collective::kScatter:
      return buffer == Buffer::kIn ? schedule.chunk_count : 1;
    case Collective::kAllgather:
    case Collective::kGather:
      return buffer == Buffer::kIn ? 1 : schedule.chunk_count;
    case Collective::kAllreduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kAlltoall:
      return schedule.chunk_count;
    case Collective::kBarrier:
      break;
  }
  return 0;
}

bool chunks_differ_in_length(const Schedule& schedule) {
  return schedule.collective == Collective::kAllreduce ||
         schedule.collective == Collective::kReduce ||
         schedule.collective == Collective::kBroadcast;
}

}  // namespace farandole
