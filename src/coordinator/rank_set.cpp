// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rank_set.hpp"

#include <algorithm>

namespace farandole::coordinator {
namespace {

constexpr std::size_t kPiecesMax = 16;  // of a list that people read

}  // namespace

RankSet RankSet::of(std::int32_t rank) {
  RankSet set;
  set.runs_.push_back({rank, rank});
  return set;
}

RankSet RankSet::all(std::int32_t rank_count) {
  RankSet set;
  if (rank_count > 0) set.runs_.push_back({0, rank_count - 1});
  return set;
}

bool RankSet::contains(std::int32_t rank) const {
  const auto run = std::lower_bound(runs_.begin(), runs_.end(), rank,
                                    [](const Run& a, std::int32_t r) { return a.last < r; });
  return run != runs_.end() && run->first <= rank;
}

void RankSet::add(Run run) {
  // Runs that overlap or touch it merge with it.
  const auto first =
      std::lower_bound(runs_.begin(), runs_.end(), run.first,
                       [](const Run& a, std::int32_t r) { return std::int64_t{a.last} + 1 < r; });
  auto last = first;
  for (; last != runs_.end() && last->first <= std::int64_t{run.last} + 1; ++last) {
    run = {std::min(run.first, last->first), std::max(run.last, last->last)};
  }
  if (first == last) {
    runs_.insert(first, run);
  } else {
    *first = run;
    runs_.erase(first + 1, last);
  }
}

void RankSet::add(const RankSet& other) {
  if (&other == this) return;
  if (runs_.empty()) {
    runs_ = other.runs_;
  } else {
    for (const Run& run : other.runs_) add(run);
  }
}

std::int32_t RankSet::count() const {
  std::int32_t count = 0;
  for (const Run& run : runs_) count += run.last - run.first + 1;
  return count;
}

RankSet RankSet::minus(const RankSet& other) const {
  RankSet rest;
  auto gap = other.runs_.begin();
  for (const auto [first, last] : runs_) {
    while (gap != other.runs_.end() && gap->last < first) ++gap;
    std::int32_t next = first;  // the lowest that may be left
    for (auto hole = gap; hole != other.runs_.end() && hole->first <= last; ++hole) {
      if (next < hole->first) rest.runs_.push_back({next, hole->first - 1});
      next = hole->last + 1;
    }
    if (next <= last) rest.runs_.push_back({next, last});
  }
  return rest;
}

std::string RankSet::describe(const RankNames& names) const {
  if (!names.empty()) {
    RankSet named;
    for (const Run& run : runs_) {
      for (std::int32_t rank = run.first; rank <= run.last; ++rank) named.add(name_of(rank, names));
    }
    return named.describe();
  }
  if (count() == 1) return "rank " + std::to_string(front());
  std::vector<std::string> pieces;
  std::int32_t left = count();
  for (const Run& run : runs_) {
    if (pieces.size() >= kPiecesMax) break;
    left -= run.last - run.first + 1;
    pieces.push_back(std::to_string(run.first));
    if (run.last - run.first > 1) {
      pieces.back() += " to " + std::to_string(run.last);
    } else if (run.last != run.first) {
      pieces.push_back(std::to_string(run.last));
    }
  }
  if (left > 0) pieces.push_back(std::to_string(left) + " more");
  std::string text = "ranks ";
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0) text += i + 1 == pieces.size() ? " and " : ", ";
    text += pieces[i];
  }
  return text;
}

}  // namespace farandole::coordinator
