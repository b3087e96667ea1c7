// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/cells.hpp"

#include <algorithm>

namespace farandole {
namespace {

bool continues(const Run& run, const Run& next) {
  return run.at + run.count == next.at && run.value == next.value &&
         run.chunk + run.count == next.chunk;
}

}  // namespace

CellMap::CellMap(const Schedule& schedule, Aliasing aliasing) {
  const std::int64_t in = chunks_of(schedule, Buffer::kIn);
  const std::int64_t out = chunks_of(schedule, Buffer::kOut);
  if (aliasing == Aliasing::kApart) {
    out_ = in;
    scratch_ = in + out;
    return;
  }
  scratch_ = in > out ? in : out;
  in_at_rank_ =
      schedule.collective == Collective::kAllgather || schedule.collective == Collective::kGather;
  out_at_rank_ = schedule.collective == Collective::kReducescatter ||
                 schedule.collective == Collective::kScatter;
}

std::int64_t CellMap::of(std::int64_t rank, Buffer buffer, std::int64_t index) const {
  if (buffer == Buffer::kScratch) return scratch_ + index;
  if (buffer == Buffer::kIn) return index + (in_at_rank_ ? rank : 0);
  return out_ + index + (out_at_rank_ ? rank : 0);
}

// Afterwards no run crosses `at`.
void Cells::split(std::int64_t at) {
  auto next = runs_.lower_bound(at);
  if (next == runs_.begin()) return;
  Run& before = std::prev(next)->second;
  const std::int64_t kept = at - before.at;
  if (kept >= before.count) return;
  runs_.emplace_hint(next, at, Run{at, before.count - kept, before.value, before.chunk + kept});
  before.count = kept;
}

void Cells::write(const Run& run) {
  split(run.at);
  split(run.at + run.count);
  auto first = runs_.lower_bound(run.at);
  auto last = first;
  while (last != runs_.end() && last->first < run.at + run.count) ++last;
  auto at = runs_.insert(runs_.erase(first, last), {run.at, run});
  if (const auto next = std::next(at); next != runs_.end() && continues(at->second, next->second)) {
    at->second.count += next->second.count;
    runs_.erase(next);
  }
  if (at == runs_.begin()) return;
  Run& before = std::prev(at)->second;
  if (!continues(before, at->second)) return;
  before.count += at->second.count;
  runs_.erase(at);
}

bool Cells::read(std::int64_t at, std::int64_t count, std::vector<Run>& into) const {
  into.clear();
  const std::int64_t end = at + count;
  auto next = runs_.upper_bound(at);
  if (next != runs_.begin()) --next;
  for (; next != runs_.end() && at < end; ++next) {
    const Run& run = next->second;
    if (run.at + run.count <= at) continue;
    if (run.at > at) return false;
    const std::int64_t length = std::min(run.at + run.count, end) - at;
    into.push_back({at, length, run.value, run.chunk + at - run.at});
    at += length;
  }
  return at == end;
}

void normalize(std::vector<Run>& runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.at < b.at; });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    if (continues(runs[kept], runs[i])) {
      runs[kept].count += runs[i].count;
    } else {
      runs[++kept] = runs[i];
    }
  }
  if (!runs.empty()) runs.resize(kept + 1);
}

}  // namespace farandole
