// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "schedule/symbolic.hpp"

namespace farandole {

CellMap::CellMap(const Schedule& schedule, Aliasing aliasing)
    : scratch_slots_(schedule.scratch_slots) {
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

std::size_t CellMap::of(std::int64_t rank, Buffer buffer, std::int64_t index) const {
  if (buffer == Buffer::kScratch) return static_cast<std::size_t>(scratch_ + index);
  if (buffer == Buffer::kIn) return static_cast<std::size_t>(index + (in_at_rank_ ? rank : 0));
  return static_cast<std::size_t>(out_ + index + (out_at_rank_ ? rank : 0));
}

ValueTable::ValueTable(std::int64_t rank_count)
    : words_((static_cast<std::size_t>(rank_count) + 63) / 64) {
  add(-1);  // kUndefined
}

ValueTable::Id ValueTable::add(std::int64_t chunk) {
  chunks_.push_back(chunk);
  contributors_.resize(contributors_.size() + words_);
  return static_cast<Id>(chunks_.size() - 1);
}

ValueTable::Id ValueTable::leaf(std::int64_t rank, std::int64_t chunk) {
  const Id id = add(chunk);
  const auto bit = static_cast<std::size_t>(rank);
  contributors_[id * words_ + bit / 64] = std::uint64_t{1} << (bit % 64);
  return id;
}

ValueTable::Id ValueTable::reduce(Id left, Id right) {
  const auto [known, is_new] = trees_.try_emplace(std::uint64_t{left} << 32 | right, kUndefined);
  if (!is_new) return known->second;
  const Id id = add(chunks_[left]);
  known->second = id;
  for (std::size_t w = 0; w < words_; ++w) {
    contributors_[id * words_ + w] =
        contributors_[left * words_ + w] | contributors_[right * words_ + w];
  }
  return id;
}

bool ValueTable::share_contributors(Id a, Id b) const {
  for (std::size_t w = 0; w < words_; ++w) {
    if (contributors_[a * words_ + w] & contributors_[b * words_ + w]) return true;
  }
  return false;
}

std::int64_t ValueTable::contributor_count(Id id) const {
  std::int64_t count = 0;
  for (std::size_t w = 0; w < words_; ++w) count += std::popcount(contributors_[id * words_ + w]);
  return count;
}

std::string ValueTable::text(Id id) const {
  if (id == kUndefined) return "nothing defined";
  return "chunk " + std::to_string(chunks_[id]) + " from " + std::to_string(contributor_count(id)) +
         " rank(s)";
}

}  // namespace farandole
