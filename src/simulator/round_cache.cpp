// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulator/round_cache.hpp"

#include <algorithm>

namespace farandole {

using Instruction = Workload::Instruction;

RoundCache::RoundCache(Workload& workload)
    : workload_(workload), entries_(workload.instructions().size()) {
  std::vector<std::int64_t> loops;  // iterations of the enclosing ones, the outermost first
  for (const Instruction& instruction : workload.instructions()) {
    if (instruction.kind == Instruction::Kind::kLoopBegin) loops.push_back(instruction.iterations);
    if (instruction.kind == Instruction::Kind::kLoopEnd) loops.pop_back();
    std::int64_t visits = workload.rank_count();
    for (std::size_t d = 0; d < loops.size(); ++d) {
      if ((instruction.counters >> d & 1U) == 0) visits *= loops[d];
    }
    visits_.push_back(visits);
  }
}

Result<RoundCache::Entry*> RoundCache::find(std::uint32_t instruction, const Counters& counters) {
  const Instruction& at = workload_.instructions()[instruction];
  Counters key = counters;
  for (std::size_t d = 0; d < key.size(); ++d) {
    if ((at.counters >> d & 1U) == 0) key[d] = 0;
  }
  auto& entries = entries_[instruction];
  for (const auto& entry : entries) {
    if (entry->counters == key) return entry.get();
  }
  auto timed = workload_.round(at, counters);
  if (!timed) return std::move(timed).error();
  entries.push_back(
      std::make_unique<Entry>(Entry{*std::move(timed), key, visits_[instruction], {}}));
  return entries.back().get();
}

void RoundCache::release(std::uint32_t instruction, Entry* entry) {
  if (--entry->visits_left > 0) return;
  std::erase_if(entries_[instruction],
                [entry](const std::unique_ptr<Entry>& each) { return each.get() == entry; });
}

}  // namespace farandole
